// All functions with what they cost, sorted as one likes.

const FUNCTION_NAME_WIDTH = 560;

class FunctionView extends View {
  constructor(model, onOpen) {
    super(model);
    this.onOpen = onOpen;
    this.scroller = document.getElementById("functions");
    this.columns = new Columns(model, () => this.#sort());
    this.columns.sorted = {id: "self", isUp: false};
    this.head = element("div", "columns");
    this.list = new VirtualList(this.scroller, 24, (row) => this.#row(row),
      {head: this.head, onEnter: (index) => this.onOpen(this.list.rows[index].number)});
    new ResizeObserver(() => this.#resize()).observe(this.scroller);
  }

  draw() {
    this.list.draw();
  }

  update() {
    const {model} = this;
    const count = model.functionNames.length;
    const weights = model.measures.map((_, measure) => model.weigh(measure, this.thread));
    this.figures = Figures.of(model, weights, this, model.frameFunction, count);
    this.columns.setMeasure(this.measure, this.figures.sums);
    const {self} = this.figures;
    this.rows = [];
    for (let number = 0; number < count; number++) {
      const isMeasured = this.figures.total[number] > 0 || self.some((amounts) => amounts[number] > 0);
      if (isMeasured && (!this.found || this.found.functions[number])) {
        this.rows.push({number, self: self[this.measure][number], total: this.figures.total[number]});
      }
    }
    this.#sort();
  }

  #resize(draws = true) {
    if (!this.figures) return;
    this.visible = this.columns.visible(this.scroller.clientWidth - FUNCTION_NAME_WIDTH);
    this.head.replaceChildren(...this.columns.heads(this.visible),
      this.columns.head({id: "name", title: "function", className: "what"}), this.columns.head({id: "where", title: "where", className: "where"}));
    document.getElementById("function-menu").replaceChildren(...this.columns.menu(this.visible));
    if (draws) this.list.refresh();
  }

  #sort() {
    const {model} = this;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const names = {
      name: (a, b) => compare(model.functionNames[a.number], model.functionNames[b.number]),
      where: (a, b) => compare(model.placeOf(a.number), model.placeOf(b.number)),
    };
    this.columns.sort(this.rows, this.figures, (row) => row.number, names);
    this.#resize(false);
    this.list.setRows(this.rows);
  }

  #row(row) {
    const {model} = this;
    const kind = model.isUserFunction(row.number) ? "user" : model.functionKind[row.number] === KIND_PYTHON ? "library" : "other";
    const name = element("span", "what", element("i", `swatch ${kind}`), model.functionNames[row.number]);
    name.title = `${model.functionNames[row.number]}\nShow in the source`;
    name.addEventListener("click", () => this.onOpen(row.number));
    const where = element("span", "where", `\u200e${model.placeOf(row.number)}`);
    where.title = model.placeOf(row.number);
    return element("div", "row function", ...this.columns.cells(this.visible, this.figures, row.number), name, where);
  }
}
