// The figures that every table shows of its rows: which columns there are, what stands in their cells, which give way
// when there is little room, and what the rows are sorted by.

const PARTS = [["cpu_python", "python"], ["cpu_native", "native"], ["cpu_kernel", "kernel"]];

// Title and, for a window with little room, rank: the lowest goes first.
const COLUMN_FACTS = {
  samples: ["samples", 5], wall: ["wall", 72], cpu: ["CPU", 74], cpu_python: ["python", 80], cpu_native: ["native", 80],
  cpu_kernel: ["kernel", 80], wait: ["wait", 70], gil_wait: ["GIL wait", 30], alloc_bytes: ["allocated", 65],
  alloc_count: ["allocs", 8], peak_bytes: ["peak", 60], live_bytes: ["live", 40], python_bytes: ["by Python", 10],
  copy_bytes: ["copied", 35], temporary_bytes: ["soon freed", 9], live_count: ["live allocs", 7], gpu: ["GPU", 73], gpu_bytes: ["GPU mem", 36],
};

/** Rows of figures: `self[measure][key]`, `total[key]` of the chosen measure, the sums that shares are of, and, where a
 * measure is sampled, variances[measure][key]. */
class Figures {
  constructor(self, total, sums, variances = []) {
    this.self = self;
    this.variances = variances;
    this.total = total;
    this.sums = sums;
    this.most = self.map((amounts) => amounts.reduce((most, amount) => Math.max(most, amount), 0));
  }

  /** By key of a frame. weights[measure]: of every measure; the chosen measure and thread. */
  static of(model, weights, {measure, thread}, keyOf, keyCount, charge = null) {
    const selfOf = (weight) => weight && model.selfBy(weight, keyOf, keyCount, charge);
    return new Figures(weights.map(selfOf), model.totalBy(weights[measure], keyOf, keyCount, charge), weights.map(({sum}) => sum),
      model.measures.map((_, other) => selfOf(model.weighVariance(other, thread))));
  }

  /** How far an amount may be from the truth in 19 of 20 cases. */
  margin(measure, key) {
    const variances = this.variances[measure];
    return variances ? marginOf(this.self[measure][key], variances[key]) : 0;
  }
}

class Columns {
  /** onChange: the choice of columns, or what they are sorted by, is another. */
  constructor(model, onChange) {
    this.model = model;
    this.onChange = onChange;
    this.shown = new Map(); // id → whether the user wants it
    this.hasTotal = true;
    this.hasParts = PARTS.every(([name]) => model.measure(name) !== undefined) && model.measure("cpu") !== undefined;
    this.sorted = null; // {id, isUp}
  }

  /** Of the chosen measure; `sums` by measure: columns of what never happened are left out. */
  setMeasure(measure, sums) {
    this.measure = measure;
    this.sums = sums;
    this.list = this.#make();
  }

  #make() {
    const {measure, model} = this;
    const {unit, name} = model.measures[measure];
    const self = (figures, key) => figures.self[measure][key];
    const list = [
      {id: "self", title: COLUMN_FACTS[name]?.[0] ?? name, keep: 100, value: self, className: this.#figureClass(measure),
        cell: (figures, key) => this.#amount(self(figures, key), unit, figures.margin(measure, key)), help: `${model.measures[measure].label}, of the line itself`},
      {id: "share", title: "share", keep: 99, value: self, className: "figure share", cell: (figures, key, make) => this.#share(figures, key, make), help: "of all that is shown"},
      {id: "bar", title: "", keep: 98, value: self, className: "meter", cell: (figures, key, make) => this.#meter(figures, key, make)},
    ];
    if (this.hasTotal) {
      list.push({id: "total", title: "total", keep: 75, value: (figures, key) => figures.total[key], className: "figure share",
        cell: (figures, key, made) => this.#total(figures, key, made), help: "with what it called"});
    }
    const others = [...model.measures.keys()].filter((m) => m !== measure && this.sums[m] > 0);
    return list.concat(others.sort((a, b) => this.#order(a) - this.#order(b)).map((m) => this.#other(m)));
  }

  #order(measure) {
    return Object.keys(COLUMN_FACTS).indexOf(this.model.measures[measure].name);
  }

  #other(measure) {
    const {model} = this;
    const {name, unit, label} = model.measures[measure];
    const value = (figures, key) => figures.self[measure][key];
    const isPart = this.hasParts && PARTS.some(([part]) => part === name);
    const whole = model.measure("cpu");
    const cell = isPart
      ? (figures, key) => this.#percent(value(figures, key), figures.sums[whole])
      : (figures, key) => this.#amount(value(figures, key), unit, figures.margin(measure, key));
    const [title, rank] = COLUMN_FACTS[name] ?? [name, 1];
    // Who looks at memory wants the rest of it, too.
    const keep = unit === "bytes" && model.measures[this.measure].unit === "bytes" ? rank + 25 : rank;
    return {id: name, title, keep, value, cell, help: isPart ? `${label}, as a share of all CPU time` : label,
      className: isPart ? `figure share part-${name.slice(4)}` : `${this.#figureClass(measure)} other`};
  }

  /** Where there are margins, there must be room for them. */
  #figureClass(measure) {
    return this.model.data.entries.variances[measure] ? "figure sampled" : "figure";
  }

  #amount(amount, unit, margin = 0) {
    if (amount <= 0) return "";
    return margin > 0 ? format.bytesWithin(amount, margin) : format.amount(amount, unit);
  }

  #percent(part, whole) {
    return part > 0 ? format.percent(part, whole) : "";
  }

  #share(figures, key, made) {
    const amount = figures.self[this.measure][key];
    const whole = figures.sums[this.measure];
    if (amount > 0) {
      made.classList.add("tint");
      made.style.setProperty("--heat", Math.round((60 * amount) / whole) + 8);
    }
    return this.#percent(amount, whole);
  }

  /** Faint where it says no more than self does. */
  #total(figures, key, made) {
    const total = figures.total[key];
    made.classList.toggle("same", total <= figures.self[this.measure][key]);
    return this.#percent(total, figures.sums[this.measure]);
  }

  /** How full a bar is: as a share of the largest there is. */
  #bar(className, amount, most) {
    const bar = element("i", className);
    bar.style.width = `${most > 0 ? Math.max((100 * amount) / most, amount > 0 ? 1 : 0) : 0}%`;
    return bar;
  }

  #meter(figures, key, made) {
    const {model, measure} = this;
    const {name} = model.measures[measure];
    if (!this.hasParts || name !== "cpu") {
      const most = Math.max(figures.most[measure], 0);
      if (this.hasTotal && figures.total[key] > figures.self[measure][key]) made.append(this.#bar("whole", Math.min(figures.total[key], most), most));
      made.append(this.#bar("own", figures.self[measure][key], most));
      return "";
    }
    const stack = element("span", "stack");
    for (const [part, title] of PARTS) stack.append(this.#bar(title, figures.self[model.measure(part)][key], figures.most[measure]));
    made.append(stack);
    const wait = model.measure("wait");
    if (wait !== undefined) made.append(this.#bar("wait", figures.self[wait][key], figures.most[wait]));
    return "";
  }

  /** Those that the user wants, or that there is room for. */
  visible(room) {
    const widths = {meter: 122, share: 66, sampled: 148};
    const width = (column) => widths[column.className.split(" ").find((name) => widths[name])] ?? 88;
    let left = room;
    const isIn = new Set();
    for (const column of [...this.list].sort((a, b) => b.keep - a.keep)) {
      const wanted = this.shown.get(column.id);
      const fits = left >= width(column) || column.keep >= 98;
      if (wanted ?? fits) {
        isIn.add(column);
        left -= width(column);
      } else if (wanted === undefined) {
        left = 0; // none of a lower rank in its place
      }
    }
    return this.list.filter((column) => isIn.has(column));
  }

  /** The cells of one row. */
  cells(visible, figures, key) {
    return visible.map((column) => {
      const made = element("span", column.className);
      made.append(column.cell(figures, key, made));
      return made;
    });
  }

  emptyCells(visible) {
    return visible.map((column) => element("span", column.className));
  }

  /** A button that sorts by a column: downwards first, then upwards, then, where there is one, in the order given. */
  head({id, title, className, help}, hasOrder = false) {
    const button = element("button", className, title || " ");
    button.type = "button";
    button.dataset.key = id;
    if (help) button.title = help;
    if (id === "bar") {
      button.textContent = this.hasParts && this.model.measures[this.measure].name === "cpu" ? "python native kernel" : "";
      button.className = "meter legend-bar";
    }
    if (this.sorted?.id === id) button.setAttribute("aria-sort", this.sorted.isUp ? "ascending" : "descending");
    button.addEventListener("click", () => {
      const isNames = ["name", "where", "line"].includes(id);
      if (this.sorted?.id !== id) this.sorted = {id, isUp: isNames};
      else if (this.sorted.isUp === isNames) this.sorted = {id, isUp: !isNames};
      else this.sorted = hasOrder ? null : {id, isUp: isNames};
      this.onChange();
    });
    return button;
  }

  heads(visible, hasOrder = false) {
    return visible.map((column) => this.head(column, hasOrder));
  }

  /** Sorts rows by the chosen column. `names`: by id, what text columns compare. */
  sort(rows, figures, keyOf, names = {}) {
    const {id, isUp} = this.sorted;
    const sign = isUp ? 1 : -1;
    const column = this.list.find((one) => one.id === id);
    if (names[id]) return rows.sort((a, b) => sign * names[id](a, b));
    const value = column?.value ?? this.list[0].value;
    const main = (row) => figures.self[this.measure][keyOf(row)];
    return rows.sort((a, b) => sign * (value(figures, keyOf(a)) - value(figures, keyOf(b))) || main(b) - main(a));
  }

  /** Check boxes for the columns, to be put below a button. */
  menu(visible) {
    return this.list.filter((column) => column.keep < 98).map((column) => {
      const box = element("input", "");
      box.type = "checkbox";
      box.checked = visible.includes(column);
      box.addEventListener("change", () => {
        this.shown.set(column.id, box.checked);
        this.onChange();
      });
      return element("label", "", box, ` ${column.help ?? column.title}`);
    });
  }
}
