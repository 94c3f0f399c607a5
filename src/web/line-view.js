// Files, most expensive first, and the source of one of them, or the most expensive lines of all, with what each cost.

const ALL_FILES = -2;
const NO_FILE = -1;
const LINE_NUMBER_WIDTH = 64;
const LEAST_CODE_WIDTH = 400;

class LineView extends View {
  constructor(model) {
    super(model);
    this.find = (id) => document.getElementById(id);
    this.columns = new Columns(model, () => this.#showFile(false));
    this.head = element("div", "columns");
    this.fileList = new VirtualList(this.find("files"), 46, (row) => this.#fileRow(row),
      {onMove: (index) => this.selectFile(this.fileList.rows[index].number)});
    this.lineList = new VirtualList(this.find("source"), 20, (row) => this.#lineRow(row), {head: this.head});
    this.library = this.find("show-library");
    this.library.checked = model.data.all;
    this.selected = NO_FILE;
    this.target = -1;
    this.library.addEventListener("change", () => this.update());
    this.find("hottest").addEventListener("click", () => this.#goToHottest());
    new ResizeObserver(() => this.#resize()).observe(this.find("source"));
  }

  draw() {
    this.fileList.draw();
    this.lineList.draw();
  }

  update() {
    const {model} = this;
    const keyOf = model.frameFileLine;
    const count = model.fileLineFrame.length;
    const charge = model.charge(this.library.checked);
    const weights = model.measures.map((_, measure) => model.weigh(measure, this.thread));
    this.weights = weights[this.measure];
    this.figures = Figures.of(model, weights, this, keyOf, count, charge);
    this.natives = model.nativesBy(this.weights, keyOf, charge);
    this.columns.setMeasure(this.measure, this.figures.sums);
    this.files = this.#groupByFile();
    const rows = [...this.files.values()].filter((file) => !this.found || this.found.files.has(file.number))
      .sort((a, b) => b.self - a.self || b.total - a.total || a.number - b.number);
    this.keys = rows.flatMap((file) => [...file.lines.values()]);
    if (rows.length > 1) rows.unshift({number: ALL_FILES, self: this.weights.sum, lines: new Map()});
    if (!rows.some((file) => file.number === this.selected)) this.selected = rows[rows.length > 1 ? 1 : 0]?.number ?? NO_FILE;
    this.find("files").hidden = rows.length < 2;
    this.fileList.setRows(rows);
    this.fileList.setCurrent(rows.findIndex((file) => file.number === this.selected));
    this.#showFile();
  }

  /** {number, self, total, lines: line → key} by file; a file's total is its largest line's. */
  #groupByFile() {
    const {model} = this;
    const {self, total} = this.figures;
    const files = new Map();
    for (let key = 0; key < total.length; key++) {
      if (total[key] <= 0 && !self.some((amounts) => amounts[key] > 0)) continue;
      const frame = model.fileLineFrame[key];
      const number = model.functionFile[model.frameFunction[frame]];
      if (!files.has(number)) files.set(number, {number, self: 0, total: 0, lines: new Map()});
      const file = files.get(number);
      file.lines.set(model.frameLine[frame], key);
      file.self += self[this.measure][key];
      file.total = Math.max(file.total, total[key]);
    }
    return files;
  }

  #pathOf(number) {
    if (number === ALL_FILES) return "All files";
    return number === NO_FILE ? "" : this.model.paths[number] || "<no file>";
  }

  #fileRow(file) {
    const path = this.#pathOf(file.number);
    const bar = element("i", "share-bar");
    bar.style.width = `${this.weights.sum > 0 ? (100 * file.self) / this.weights.sum : 0}%`;
    const where = file.number === ALL_FILES ? "the lines that cost most" : format.folder(path) || " ";
    const row = element("div", "row file",
      element("div", "name", element("span", "", format.base(path)), element("span", "", format.percent(file.self, this.weights.sum))),
      element("div", "where", `\u200e${where}`), bar);
    row.title = path;
    row.setAttribute("aria-selected", file.number === this.selected);
    row.addEventListener("click", () => this.selectFile(file.number));
    return row;
  }

  selectFile(number, line = -1) {
    this.freshen();
    if (number >= 0 && !this.files.has(number) && !this.library.checked) {
      this.library.checked = true;
      this.update();
    }
    this.selected = number;
    this.target = line;
    this.fileList.refresh();
    this.fileList.setCurrent(this.fileList.rows.findIndex((file) => file.number === number));
    this.#showFile();
  }

  /** moves: to the line that was asked for, else to the most expensive one. */
  #showFile(moves = true) {
    const file = this.files.get(this.selected);
    this.find("file-name").textContent = this.#pathOf(this.selected);
    this.find("hottest").hidden = !file || this.columns.sorted !== null;
    if (this.selected === ALL_FILES && !this.columns.sorted) this.columns.sorted = {id: "self", isUp: false};
    const isSorted = this.columns.sorted !== null;
    const keys = file ? [...file.lines.values()] : this.keys;
    this.#resize(false);
    this.lineList.setRows(isSorted ? this.#sortedLines(keys) : file ? this.#linesOf(file) : []);
    if (!moves) return;
    const index = this.lineList.rows.findIndex((row) => row.number === this.target);
    if (index >= 0) this.lineList.scrollTo(index);
    else if (isSorted) this.lineList.scrollTo(0);
    else this.#goToHottest();
  }

  #resize(draws = true) {
    if (!this.figures) return;
    const room = this.find("source").clientWidth - LINE_NUMBER_WIDTH - LEAST_CODE_WIDTH;
    this.visible = this.columns.visible(room);
    const line = {id: "line", title: "line", className: "number", help: "as in the file"};
    this.head.replaceChildren(...this.columns.heads(this.visible, this.selected !== ALL_FILES), this.columns.head(line), element("span", "code", "source"));
    this.find("line-menu").replaceChildren(...this.columns.menu(this.visible));
    if (draws) this.lineList.refresh();
  }

  /** The text of a file's lines, by number, and what each begins in the middle of. */
  #sourceOf(number) {
    const runs = this.model.data.sources[number];
    const source = new Map();
    runs?.first.forEach((first, i) => {
      let open = null;
      runs.text[i].forEach((text, j) => {
        source.set(first + j, {text, open});
        open = colourLine(text, open).open;
      });
    });
    return source;
  }

  /** Source lines with their sums; measured lines whose source is not known stand alone. */
  #linesOf(file) {
    const source = this.#sourceOf(file.number);
    for (const line of file.lines.keys()) if (!source.has(line)) source.set(line, {text: null});
    const rows = [];
    let last = 0;
    for (const number of [...source.keys()].sort((a, b) => a - b)) {
      if (number > last + 1 && rows.length + last > 0) rows.push({gap: true});
      rows.push({number, key: file.lines.get(number), file: file.number, ...source.get(number)});
      last = number;
    }
    return rows;
  }

  /** Measured lines, as the columns want them. Their text is looked up when they are drawn. */
  #sortedLines(keys) {
    const {model} = this;
    const rows = keys.map((key) => {
      const frame = model.fileLineFrame[key];
      return {key, number: model.frameLine[frame], file: model.functionFile[model.frameFunction[frame]], isLoose: true};
    });
    const names = {line: (a, b) => a.file - b.file || a.number - b.number};
    return this.columns.sort(rows, this.figures, (row) => row.key, names);
  }

  #looseText(row) {
    this.sources ??= new Map();
    if (!this.sources.has(row.file)) this.sources.set(row.file, this.#sourceOf(row.file));
    return this.sources.get(row.file).get(row.number) ?? {text: null};
  }

  #lineRow(row) {
    if (row.gap) {
      return element("div", "row line gap", ...this.columns.emptyCells(this.visible), element("span", "number", "⋯"), element("span", "code", ""));
    }
    const isMeasured = row.key !== undefined;
    const cells = isMeasured ? this.columns.cells(this.visible, this.figures, row.key) : this.columns.emptyCells(this.visible);
    const {text, open} = row.isLoose ? this.#looseText(row) : row;
    const code = element("span", "code");
    const isAlone = this.selected === ALL_FILES;
    if (isAlone) code.append(element("span", "place", format.base(this.model.paths[row.file])));
    code.append(...this.#textOf(row, isAlone ? text?.trimStart() ?? null : text, open));
    const natives = isMeasured ? this.#nativesOf(row.key) : null;
    if (natives) code.append(natives);
    const made = element("div", `row line${isMeasured ? "" : " cold"}${text === null ? " gap" : ""}`, ...cells,
      element("span", "number", row.number > 0 ? String(row.number) : "?"), code);
    if (isAlone) {
      made.classList.add("link");
      made.addEventListener("click", () => {
        this.columns.sorted = null;
        this.selectFile(row.file, row.number);
      });
    }
    if (row.number > 0 && row.number === this.target && this.selected !== ALL_FILES) made.classList.add("target");
    return made;
  }

  #textOf(row, text, open) {
    if (text !== null) {
      return colourLine(text, open).pieces.map(([piece, className]) => (className ? element("span", className, piece) : piece));
    }
    if (row.key === undefined) return [];
    const {model} = this;
    const number = model.frameFunction[model.fileLineFrame[row.key]];
    return [model.functionKind[number] === KIND_NATIVE ? "‹native threads›" : `‹${model.functionNames[number]}: source not available›`];
  }

  /** The native functions that a line's time went to. */
  #nativesOf(key) {
    const natives = this.natives.get(key)?.filter(({amount}) => amount * 100 >= this.weights.sum);
    if (!natives?.length) return null;
    const words = natives.slice(0, 3).map(({name, place, amount}) =>
      `${name === "<native>" ? place : `${name} (${place})`} ${format.percent(amount, this.weights.sum)}`);
    const made = element("span", "natives", words.join(" · ") + (natives.length > 3 ? " …" : ""));
    made.title = natives.map(({name, place, amount}) => `${name}  ${place}  ${format.percent(amount, this.weights.sum)}`).join("\n");
    return made;
  }

  #goToHottest() {
    const {rows} = this.lineList;
    const cost = (row) => (row.key === undefined ? [-1, -1] : [this.figures.self[this.measure][row.key], this.figures.total[row.key]]);
    let best = -1;
    rows.forEach((row, i) => {
      if (row.key === undefined) return;
      const [self, total] = cost(row);
      const [bestSelf, bestTotal] = best < 0 ? [-1, -1] : cost(rows[best]);
      if (self > bestSelf || (self === bestSelf && total > bestTotal)) best = i;
    });
    if (best >= 0) this.lineList.scrollTo(best);
  }
}
