// All functions with what they cost, sorted as one likes.

class FunctionView {
  constructor(model, onOpen) {
    this.model = model;
    this.onOpen = onOpen;
    this.order = "self";
    this.list = new VirtualList(document.getElementById("functions"), 24, (row) => this.#row(row));
    this.#writeHead();
  }

  #writeHead() {
    const head = document.getElementById("function-columns");
    const column = (key, title, className) => {
      const button = element("button", className, title);
      button.dataset.key = key;
      button.addEventListener("click", () => {
        this.order = key;
        this.#sort();
      });
      return button;
    };
    head.replaceChildren(
      column("self", "self", "figure"), element("span", "figure share"),
      column("total", "total", "figure"), element("span", "figure share"), element("span", "meter"),
      column("name", "function", "what"), column("where", "where", "where"));
  }

  setWeights(weights, unit) {
    this.weights = weights;
    this.unit = unit;
    this.isStale = true;
  }

  setSearch(found) {
    this.found = found;
    this.isStale = true;
  }

  show() {
    if (this.isStale) this.#update();
    this.list.draw();
  }

  #update() {
    const {model} = this;
    this.isStale = false;
    const sums = model.sumBy(this.weights, model.frameFunction, model.functionNames.length);
    this.rows = [];
    for (let i = 0; i < sums.self.length; i++) {
      if (sums.total[i] > 0 && (!this.found || this.found.functions[i])) {
        this.rows.push({number: i, self: sums.self[i], total: sums.total[i]});
      }
    }
    this.#sort();
  }

  #where(number) {
    const path = this.model.paths[this.model.functionFile[number]];
    const line = this.model.functionLine[number];
    return path && line > 0 ? `${path}:${line}` : path;
  }

  #sort() {
    const orders = {
      self: (a, b) => b.self - a.self || b.total - a.total,
      total: (a, b) => b.total - a.total || b.self - a.self,
      name: (a, b) => this.model.functionNames[a.number].localeCompare(this.model.functionNames[b.number]),
      where: (a, b) => (this.#where(a.number) < this.#where(b.number) ? -1 : 1),
    };
    this.rows.sort(orders[this.order]);
    for (const button of document.querySelectorAll("#function-columns button")) {
      if (button.dataset.key === this.order) button.setAttribute("aria-sort", "descending");
      else button.removeAttribute("aria-sort");
    }
    this.list.setRows(this.rows);
  }

  #row(row) {
    const whole = this.weights.sum;
    const name = element("span", "what", this.model.functionNames[row.number]);
    const meter = element("span", "meter");
    for (const [amount, className] of [[row.total, ""], [row.self, "self"]]) {
      const bar = element("i", className);
      bar.style.width = `${(100 * amount) / whole}%`;
      meter.append(bar);
    }
    name.title = `${this.model.functionNames[row.number]}\nShow in the source`;
    name.addEventListener("click", () => this.onOpen(row.number));
    const self = row.self > 0 ? [format.amount(row.self, this.unit), format.percent(row.self, whole)] : ["", ""];
    return element("div", "row function",
      element("span", "figure", self[0]), element("span", "figure share", self[1]),
      element("span", "figure", format.amount(row.total, this.unit)), element("span", "figure share", format.percent(row.total, whole)),
      meter, name, element("span", "where", this.#where(row.number)));
  }
}
