// Memory over time, lines that likely leak, and which lines held what at the peak.

const PEAK_ROWS = 40;

class MemoryView extends View {
  /** onOpen({file, line}): a place was clicked; onPeak(): its flame graph is wanted. */
  constructor(model, onOpen, onPeak) {
    super(model);
    this.onOpen = onOpen;
    this.find = (id) => document.getElementById(id);
    this.chart = new MemoryChart(this.find("memory-chart"));
    this.number = 0; // in data.memory
    const choice = this.find("memory-process");
    const {memory} = model.data;
    choice.hidden = memory.length < 2;
    choice.replaceChildren(...memory.map(({process}, i) => new Option(`${model.processes[process].pid}  ${model.processes[process].command}`, i)));
    choice.addEventListener("change", () => { this.number = Number(choice.value); this.update(); });
    this.find("memory-flame").hidden = model.measure("peak_bytes") === undefined;
    this.find("memory-flame").addEventListener("click", onPeak);
  }

  /** A thread that is chosen above means its process. */
  setWeights(measure, thread) {
    super.setWeights(measure, thread);
    const number = thread < 0 ? -1 : this.model.data.memory.findIndex(({process}) => process === this.model.threads[thread].process);
    if (number >= 0) {
      this.number = number;
      this.find("memory-process").value = number;
    }
  }

  setSearch() {}

  draw() {
    this.chart.draw();
  }

  update() {
    const memory = this.model.data.memory[this.number];
    const lines = memory.lines.slice(0, LINE_COLOURS.length).map((line) => ({...line, name: this.#name(line)}));
    this.#showFacts(memory);
    this.chart.show(memory, lines);
    this.find("memory-legend").replaceChildren(this.#legend("footprint", "var(--memory)"),
      ...lines.map((line, i) => this.#legend(line.name, LINE_COLOURS[i], line)));
    this.#showLeaks(memory.leaks);
    this.#showPeak(memory.process);
  }

  #name({file, line}) {
    return line > 0 ? `${format.base(file)}:${line}` : format.base(file);
  }

  #showFacts({peak, peakTime, end, resident, inherited, stride, lost}) {
    const facts = [`peak ${format.bytes(peak)} after ${format.time(peakTime)}`, `${format.bytes(end)} at the end`];
    if (resident > 0) facts.push(`at most ${format.bytes(resident)} in RAM`);
    if (inherited > 0) facts.push(`${format.bytes(inherited)} inherited from its parent`);
    if (stride > 1) facts.push(`lines sampled each ${format.bytes(stride)} on average`);
    if (lost > 0) facts.push(`${format.amount(lost, "count")} samples lost`);
    this.find("memory-facts").textContent = facts.join(" · ");
  }

  #legend(name, colour, place = null) {
    const swatch = element("i", "swatch");
    swatch.style.background = colour;
    if (!place) return element("span", "", swatch, ` ${name}`);
    const button = this.#placeButton(place, swatch);
    button.title = `${place.file}:${place.line}\nat most ${format.bytes(place.most)}`;
    return button;
  }

  #placeButton(place, ...before) {
    const button = element("button", "", ...before, this.#name(place));
    button.type = "button";
    button.title = `${place.file}:${place.line}`;
    button.addEventListener("click", () => this.onOpen(place));
    return button;
  }

  /** rows: cells, the last two of which are a place and its source text. */
  #table(heads, rows) {
    const classOf = (i) => (i === heads.length - 1 ? "code" : i === heads.length - 2 ? "what" : "");
    return element("table", "",
      element("thead", "", element("tr", "", ...heads.map((head, i) => element("th", classOf(i) && "what", head)))),
      element("tbody", "", ...rows.map((cells) => element("tr", "", ...cells.map((cell, i) => element("td", classOf(i), cell))))));
  }

  #sourceOf({file, line}) {
    const runs = this.model.data.sources[this.model.paths.indexOf(file)];
    for (let i = 0; i < (runs?.first.length ?? 0); i++) {
      const text = runs.text[i][line - runs.first[i]];
      if (text !== undefined) return text.trim();
    }
    return "";
  }

  #showLeaks(leaks) {
    const rows = leaks.map((leak) => [format.percent(leak.likelihood, 1), `${format.bytes(Math.round(leak.rate))}/s`, format.bytes(leak.live),
      format.amount(leak.survivors, "count"), format.amount(leak.rises, "count"), format.time(leak.age * 1e9), this.#placeButton(leak), this.#sourceOf(leak)]);
    this.find("memory-leaks").replaceChildren(rows.length
      ? this.#table(["likelihood", "grows by", "live", "blocks", "rises", "median age", "line", "source"], rows)
      : element("div", "empty", "None: no line holds more and more to the end."));
  }

  /** Lines by what they held at the peak; with it what they allocated, and what was live at the end. */
  #showPeak(process) {
    const {model} = this;
    const measures = ["peak_bytes", "alloc_bytes", "live_bytes"].map((name) => model.measure(name));
    if (measures[0] === undefined) return;
    const keyOf = model.frameFileLine;
    const count = model.fileLineFrame.length;
    const charge = model.charge(model.data.all);
    const sumsOf = (weights) => weights && model.selfBy(weights, keyOf, count, charge);
    const [peak, allocated, live] = measures.map((measure) => (measure === undefined ? null : sumsOf(this.#weigh(model.data.entries.values[measure], process))));
    const variances = sumsOf(this.#weigh(model.data.entries.variances[measures[0]], process));
    const whole = peak.reduce((sum, amount) => sum + amount, 0);
    const keys = [...peak.keys()].filter((key) => peak[key] > 0).sort((a, b) => peak[b] - peak[a]);
    const rows = keys.slice(0, PEAK_ROWS).map((key) => {
      const frame = model.fileLineFrame[key];
      const place = {file: model.paths[model.functionFile[model.frameFunction[frame]]], line: model.frameLine[frame]};
      const margin = variances ? marginOf(peak[key], variances[key]) : 0;
      return [margin > 0 ? format.bytesWithin(peak[key], margin) : format.bytes(peak[key]), format.percent(peak[key], whole),
        allocated?.[key] ? format.bytes(allocated[key]) : "", live?.[key] ? format.bytes(live[key]) : "", this.#placeButton(place), this.#sourceOf(place)];
    });
    const rest = keys.slice(PEAK_ROWS).reduce((sum, key) => sum + peak[key], 0);
    this.find("memory-peak").replaceChildren(this.#table(["at the peak", "share", "allocated", "live at the end", "line", "source"], rows),
      ...(rest > 0 ? [element("div", "empty", `${format.bytes(rest)} in ${keys.length - PEAK_ROWS} more lines`)] : []));
  }

  /** Self by stack, of one process or of the thread that is chosen. */
  #weigh(values, process) {
    const {entries} = this.model.data;
    if (!values) return null;
    const self = new Float64Array(this.model.stackCount);
    values.forEach((value, i) => {
      const isIn = this.thread < 0 ? this.model.threads[entries.thread[i]].process === process : entries.thread[i] === this.thread;
      if (isIn) self[entries.stack[i]] += value;
    });
    return {self};
  }
}
