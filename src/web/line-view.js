// Files, most expensive first, and the source of one of them with what each line cost.

class LineView {
  constructor(model) {
    this.model = model;
    this.fileList = new VirtualList(document.getElementById("files"), 46, (row) => this.#fileRow(row));
    this.lineList = new VirtualList(document.getElementById("source"), 20, (row) => this.#lineRow(row));
    this.name = document.getElementById("file-name");
    this.library = document.getElementById("show-library");
    this.selected = -1;
    this.target = -1;
    this.library.addEventListener("change", () => this.#update());
    document.getElementById("hottest").addEventListener("click", () => this.#goToHottest());
    document.getElementById("files").addEventListener("keydown", (event) => this.#fileKey(event));
    this.#writeHead();
  }

  #writeHead() {
    const titles = ["self", "", "total", ""];
    const head = document.getElementById("line-columns");
    const made = titles.map((title, i) => element("span", i % 2 ? "figure share" : "figure", title));
    head.replaceChildren(...made, element("span", "meter"), element("span", "number", "line"), element("span", "code", "source"));
  }

  /** weights: of the measure and thread that are chosen. */
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
    this.fileList.draw();
    this.lineList.draw();
  }

  #update() {
    const {model, weights} = this;
    this.isStale = false;
    const sums = model.chargeBy(weights, model.frameFileLine, model.fileLineFrame.length, model.chargeClasses(this.library.checked));
    this.files = this.#groupByFile(sums);
    const rows = [...this.files.values()].filter((file) => file.self > 0 || file.total > 0)
      .filter((file) => !this.found || this.found.files.has(file.number))
      .sort((a, b) => b.self - a.self || b.total - a.total || a.number - b.number);
    if (!rows.some((file) => file.number === this.selected)) this.selected = rows.length ? rows[0].number : -1;
    this.fileList.setRows(rows);
    this.#showFile();
  }

  /** {number, self, total, lines: line → {self, total, function}} by file; a file's total is its largest line's. */
  #groupByFile(sums) {
    const {model} = this;
    const files = new Map();
    for (let key = 0; key < sums.self.length; key++) {
      if (sums.total[key] <= 0 && sums.self[key] <= 0) continue;
      const frame = model.fileLineFrame[key];
      const number = model.functionFile[model.frameFunction[frame]];
      if (!files.has(number)) files.set(number, {number, self: 0, total: 0, lines: new Map()});
      const file = files.get(number);
      file.lines.set(model.frameLine[frame], {self: sums.self[key], total: sums.total[key], function: model.frameFunction[frame]});
      file.self += sums.self[key];
      file.total = Math.max(file.total, sums.total[key]);
    }
    return files;
  }

  #fileRow(file) {
    const path = this.model.paths[file.number] || "<no file>";
    const row = element("div", "row file",
      element("div", "name", element("span", "", format.base(path)), element("span", "", format.percent(file.self, this.weights.sum))),
      element("div", "where", `\u200e${format.folder(path) || " "}`));
    row.title = path;
    row.setAttribute("aria-selected", file.number === this.selected);
    row.addEventListener("click", () => this.selectFile(file.number));
    return row;
  }

  #fileKey(event) {
    const step = {ArrowUp: -1, ArrowDown: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    const place = this.fileList.rows.findIndex((file) => file.number === this.selected);
    const to = this.fileList.rows[place + step];
    if (to) {
      this.selectFile(to.number);
      this.fileList.scrollTo(place + step);
    }
  }

  selectFile(number, line = -1) {
    if (this.isStale) this.#update();
    if (!this.files.has(number) && !this.library.checked) {
      this.library.checked = true;
      this.#update();
    }
    this.selected = number;
    this.target = line;
    this.fileList.refresh();
    this.#showFile();
  }

  #showFile() {
    const file = this.files.get(this.selected);
    this.name.textContent = file ? this.model.paths[file.number] || "<no file>" : "";
    this.lineList.setRows(file ? this.#linesOf(file) : []);
    const index = this.lineList.rows.findIndex((row) => row.number === this.target);
    if (index >= 0) this.lineList.scrollTo(index);
    else this.#goToHottest();
  }

  /** Source lines with their sums; measured lines whose source is not known stand alone. */
  #linesOf(file) {
    const source = new Map();
    const runs = this.model.data.sources[file.number];
    runs?.first.forEach((first, i) => runs.text[i].forEach((text, j) => source.set(first + j, text)));
    for (const line of file.lines.keys()) if (!source.has(line)) source.set(line, null);
    const rows = [];
    let last = 0;
    for (const number of [...source.keys()].sort((a, b) => a - b)) {
      if (number > last + 1 && rows.length + last > 0) rows.push({gap: true});
      rows.push({number, text: source.get(number), sum: file.lines.get(number)});
      last = number;
    }
    return rows;
  }

  #lineRow(row) {
    if (row.gap) {
      return element("div", "row line gap", ...["figure", "figure share", "figure", "figure share", "meter"].map((name) => element("span", name)),
        element("span", "number", "⋯"), element("span", "code", ""));
    }
    const {sum} = row;
    const whole = this.weights.sum;
    const figures = sum
      ? [format.amount(sum.self, this.unit), format.percent(sum.self, whole), format.amount(sum.total, this.unit), format.percent(sum.total, whole)]
      : ["", "", "", ""];
    if (sum && sum.self <= 0) figures[0] = figures[1] = "";
    const cells = figures.map((text, i) => element("span", i % 2 ? "figure share" : "figure", text));
    if (sum && sum.self > 0) {
      cells[1].classList.add("tint");
      cells[1].style.setProperty("--heat", Math.round((60 * sum.self) / whole) + 8);
    }
    const code = row.text ?? (sum ? `‹${this.model.functionNames[sum.function]}: source not available›` : "");
    const made = element("div", `row line${sum ? "" : " cold"}${row.text === null ? " gap" : ""}`, ...cells, this.#meter(sum, whole),
      element("span", "number", row.number > 0 ? String(row.number) : "?"), element("span", "code", code));
    if (row.number === this.target) made.classList.add("target");
    return made;
  }

  #meter(sum, whole) {
    const meter = element("span", "meter");
    if (!sum || whole <= 0) return meter;
    const bars = [[sum.total, ""], [sum.self, "self"]].map(([amount, name]) => {
      const bar = element("i", name);
      bar.style.width = `${(100 * amount) / whole}%`;
      return bar;
    });
    meter.append(...bars);
    return meter;
  }

  #goToHottest() {
    let best = -1;
    this.lineList.rows.forEach((row, i) => {
      const amount = (at) => [this.lineList.rows[at].sum?.self ?? 0, this.lineList.rows[at].sum?.total ?? 0];
      if (!row.sum) return;
      if (best < 0 || amount(i)[0] > amount(best)[0] || (amount(i)[0] === amount(best)[0] && amount(i)[1] > amount(best)[1])) best = i;
    });
    if (best >= 0) this.lineList.scrollTo(best);
  }
}
