// Puts the views together: what is chosen above goes to all of them.

const TABS = ["flame", "lines", "functions", "threads", "memory"];
// What the flame graph of a run is switched between; the list above has all measures.
const FLAME_MEASURES = [["cpu", "CPU"], ["wait", "waiting"], ["alloc_bytes", "allocated"], ["peak_bytes", "peak"],
  ["live_bytes", "live"], ["copy_bytes", "copied"]];

class Report {
  constructor(data) {
    this.model = new Model(data);
    this.measure = 0;
    this.thread = -1;
    this.find = (id) => document.getElementById(id);
    this.#writeHeader(data.meta);
    if (!data.measures.length) {
      this.find("controls").hidden = true;
      document.querySelector("main").replaceChildren(element("div", "empty", "Nothing was measured."));
      return;
    }
    this.tooltip = this.find("tooltip");
    this.hashes = new Map();
    this.shown = "flame";
    this.flame = new FlameGraph(this.find("flame"), (box) => this.#describe(box), {
      onHover: (box, event) => this.#hover(box, event),
      onZoom: (box) => { this.find("reset").disabled = !box.parent; },
    });
    this.views = {
      lines: new LineView(this.model),
      functions: new FunctionView(this.model, (number) => this.#openSource(number)),
      threads: new ThreadView(this.model, (thread) => this.#chooseThread(thread)),
    };
    this.tabs = TABS;
    if (data.memory) this.views.memory = new MemoryView(this.model, (place) => this.#openPlace(place), () => this.#showPeak());
    else this.tabs = TABS.filter((name) => name !== "memory");
    this.find("tab-memory").hidden = !data.memory;
    this.summary = new Summary(this.model, (measure) => this.#chooseMeasure(measure));
    this.#writeChoices();
    this.#listen();
    this.#weigh();
  }

  #writeHeader(meta) {
    document.title = `${meta.command} · strobe`;
    this.find("command").textContent = meta.command;
    this.find("command").title = meta.command;
    const facts = Object.entries(meta.facts).map(([key, value]) =>
      element("div", "", element("dt", "", key), element("dd", "", String(value))));
    this.find("facts").replaceChildren(...facts);
    this.find("honesty").textContent = meta.honesty;
    this.find("honesty").classList.toggle("warning", meta.warning);
  }

  #writeChoices() {
    const {model} = this;
    this.find("measure").replaceChildren(...model.measures.map((measure, i) => new Option(measure.label, i)));
    this.find("field-measure").hidden = model.measures.length < 2;
    this.#writeFlameMeasures();
    this.find("field-thread").hidden = model.threads.length < 2;
    const sums = model.threadSums(0);
    const whole = sums.reduce((a, b) => a + b, 0);
    const order = [...sums.keys()].sort((a, b) => sums[b] - sums[a]);
    this.find("thread").replaceChildren(new Option(`all ${model.threads.length}`, -1),
      ...order.map((i) => new Option(`${model.threads[i].name} · ${format.percent(sums[i], whole)}`, i)));
  }

  #writeFlameMeasures() {
    const {model} = this;
    const chosen = FLAME_MEASURES.map(([name, title]) => [model.measure(name), title])
      .filter(([measure]) => measure !== undefined && model.threadSums(measure).some((amount) => amount > 0));
    this.find("flame-measures").hidden = !model.data.memory || chosen.length < 2;
    this.find("flame-measures").replaceChildren(...chosen.map(([measure, title]) => {
      const button = element("button", "", title);
      button.type = "button";
      button.dataset.measure = measure;
      button.title = model.measures[measure].label;
      button.addEventListener("click", () => this.#chooseMeasure(measure));
      return button;
    }));
  }

  #listen() {
    const on = (id, type, handler) => this.find(id).addEventListener(type, handler);
    on("measure", "change", (event) => { this.measure = Number(event.target.value); this.#weigh(); });
    on("thread", "change", (event) => { this.thread = Number(event.target.value); this.#weigh(); });
    on("inverted", "change", () => this.#plant());
    on("by-line", "change", () => this.#plant());
    on("reset", "click", () => this.flame.zoom(this.flame.tree.root));
    on("search", "input", () => {
      clearTimeout(this.searchTimer);
      this.searchTimer = setTimeout(() => this.#search(), 120);
    });
    for (const name of this.tabs) on(`tab-${name}`, "click", () => this.#show(name));
    this.find("tabs").addEventListener("keydown", (event) => this.#tabKey(event));
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const typing = event.target.matches("input[type=search], select");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      this.find("search").focus();
    } else if (event.key === "Escape" && event.target === this.find("search")) {
      this.find("search").value = "";
      this.#search();
    } else if (/^[1-9]$/.test(event.key) && this.tabs[event.key - 1] && !typing && !event.ctrlKey && !event.altKey && !event.metaKey) {
      this.#show(this.tabs[event.key - 1]);
    } else if (event.key === "Escape" && this.shown === "flame" && !event.defaultPrevented) {
      this.flame.zoom(this.flame.tree.root);
    }
  }

  /** Arrow keys go from tab to tab, as everywhere. */
  #tabKey(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    this.#show(this.tabs[(this.tabs.indexOf(this.shown) + step + this.tabs.length) % this.tabs.length]);
    this.find(`tab-${this.shown}`).focus();
  }

  #chooseMeasure(measure) {
    this.find("measure").value = measure;
    this.measure = measure;
    this.#weigh();
  }

  #chooseThread(thread) {
    this.find("thread").value = thread;
    this.thread = thread;
    this.#weigh();
  }

  #show(name) {
    this.shown = name;
    for (const tab of document.querySelectorAll("[role=tab]")) {
      const chosen = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
      this.find(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    this.tooltip.hidden = true;
    if (name === "flame") this.flame.layout();
    else this.views[name].show();
  }

  #weigh() {
    const {model} = this;
    this.unit = model.measures[this.measure].unit;
    for (const button of this.find("flame-measures").children) {
      button.setAttribute("aria-pressed", Number(button.dataset.measure) === this.measure);
    }
    this.weights = model.weigh(this.measure, this.thread);
    for (const view of Object.values(this.views)) view.setWeights(this.measure, this.thread);
    this.summary.show(this.thread);
    this.#plant();
    this.#search();
  }

  /** Makes the flame graph's tree anew. */
  #plant() {
    this.byLine = this.find("by-line").checked;
    const keyOf = this.byLine ? this.model.frameFunctionLine : this.model.frameFunction;
    this.flame.setTree(new FlameTree(this.model, this.weights, keyOf, this.find("inverted").checked));
    this.find("reset").disabled = true;
  }

  #lineOf(box) {
    return this.model.frameLine[this.model.functionLineFrame[box.key]];
  }

  #functionOf(box) {
    return this.byLine ? this.model.frameFunction[this.model.functionLineFrame[box.key]] : box.key;
  }

  #describe(box) {
    if (box.key < 0) return {name: `all · ${format.amount(box.total, this.unit)}`, isRoot: true};
    const {model} = this;
    const number = this.#functionOf(box);
    const line = this.byLine ? `:${this.#lineOf(box)}` : "";
    let hash = this.hashes.get(number);
    if (hash === undefined) {
      hash = hashText(model.functionNames[number]);
      this.hashes.set(number, hash);
    }
    return {
      name: model.functionNames[number] + line,
      isUser: model.isUserFunction(number),
      isPython: model.functionKind[number] === KIND_PYTHON,
      hash,
    };
  }

  #where(box) {
    if (box.key < 0) return "";
    const number = this.#functionOf(box);
    const path = this.model.paths[this.model.functionFile[number]];
    const line = this.byLine ? this.#lineOf(box) : this.model.functionLine[number];
    return path && line > 0 ? `${path}:${line}` : path;
  }

  #hover(box, event) {
    const whole = this.weights.sum;
    if (!box) {
      this.tooltip.hidden = true;
      return;
    }
    const {name} = this.#describe(box);
    const share = (amount) => [format.amount(amount, this.unit), format.percent(amount, whole)];
    const [total, totalShare] = share(box.total);
    const [self, selfShare] = share(box.self);
    this.find("selected").textContent = `${name}  ${this.#where(box)}  total ${total} (${totalShare})  self ${self} (${selfShare})`;
    this.tooltip.hidden = !event;
    if (!event) return;
    const table = element("table", "", element("tr", "", ...["", "total", "", "self", ""].map((text) => element("th", "", text))));
    for (const row of this.#amountsOf(box)) table.append(element("tr", "", ...row.map((text) => element("td", "", text))));
    this.tooltip.replaceChildren(element("b", "", name), element("span", "path", this.#where(box)), table);
    this.#placeTooltip(event);
  }

  /** Every measure of a box: label, total with its share, self with its share. */
  #amountsOf(box) {
    const {model} = this;
    const chosen = [model.measures[this.measure].label, format.amount(box.total, this.unit), format.percent(box.total, this.weights.sum),
      format.amount(box.self, this.unit), format.percent(box.self, this.weights.sum)];
    // In the inverted tree a box stands for parts of stacks.
    if (this.flame.tree.inverted) return [chosen];
    const others = [...model.measures.keys()].filter((measure) => measure !== this.measure).map((measure) => {
      const weights = model.weigh(measure, this.thread);
      const sum = (amounts) => box.items.reduce((all, stack) => all + amounts[stack], 0);
      const {label, unit} = model.measures[measure];
      const [total, self] = [sum(weights.total), sum(weights.self)];
      return total > 0 && [label, format.amount(total, unit), format.percent(total, weights.sum),
        self > 0 ? format.amount(self, unit) : "", self > 0 ? format.percent(self, weights.sum) : ""];
    });
    return [chosen, ...others.filter((row) => row)];
  }

  #placeTooltip(event) {
    const {width, height} = this.tooltip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
    const below = event.clientY + 18;
    const top = below + height > window.innerHeight - 8 ? event.clientY - height - 10 : below;
    this.tooltip.style.left = `${Math.max(8, left)}px`;
    this.tooltip.style.top = `${Math.max(8, top)}px`;
  }

  #search() {
    const words = this.find("search").value.trim();
    this.searched = words;
    let found = null;
    if (words) {
      const functions = this.model.search(words);
      const files = new Set();
      functions.forEach((is, number) => { if (is) files.add(this.model.functionFile[number]); });
      found = {functions, files};
      const count = functions.reduce((sum, is) => sum + is, 0);
      const share = format.percent(this.model.matched(this.weights, functions), this.weights.sum);
      this.find("matches").textContent = `${count} found · ${share}`;
    } else {
      this.find("matches").textContent = "";
    }
    this.flame.setMatches(found && ((box) => found.functions[this.#functionOf(box)]));
    for (const [name, view] of Object.entries(this.views)) {
      view.setSearch(found);
      if (this.shown === name) view.show();
    }
  }

  #openPlace({file, line}) {
    const number = this.model.paths.indexOf(file);
    if (number < 0) return;
    this.#show("lines");
    this.views.lines.selectFile(number, line);
  }

  #showPeak() {
    const measure = this.model.measure("peak_bytes");
    if (measure !== undefined) this.#chooseMeasure(measure);
    this.#show("flame");
  }

  #openSource(number) {
    this.#show("lines");
    this.views.lines.selectFile(this.model.functionFile[number], this.model.functionLine[number]);
  }
}

window.strobe = new Report(JSON.parse(document.getElementById("data").textContent));
