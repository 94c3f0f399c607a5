// What was spent in all, above everything: CPU time in its parts, waiting, memory.

class Summary {
  /** onMeasure(number): one of the figures was clicked. */
  constructor(model, onMeasure) {
    this.model = model;
    this.onMeasure = onMeasure;
    this.box = document.getElementById("summary");
  }

  show(thread) {
    const {model} = this;
    const sums = new Map(model.measures.map(({name}, number) => [name, model.weigh(number, thread).sum]));
    const parts = PARTS.filter(([name]) => sums.has(name));
    this.box.hidden = parts.length === 0 || !sums.has("cpu");
    if (this.box.hidden) return;
    const cpu = sums.get("cpu");
    const bar = element("span", "stack", ...parts.map(([name, title]) => {
      const made = element("i", title);
      made.style.width = `${cpu > 0 ? (100 * sums.get(name)) / cpu : 0}%`;
      return made;
    }));
    const figures = [this.#figure("cpu", "", "CPU", sums)];
    // Of a thread that was looked at from outside nobody knows the parts.
    if (cpu === 0 || parts.some(([name]) => sums.get(name) > 0)) {
      figures.push(bar, ...parts.map(([name, title]) => this.#figure(name, title, title, sums, format.percent(sums.get(name), cpu))));
    }
    for (const [name, className, words] of [["wait", "wait", "waited"], ["gil_wait", "", "of it for the GIL"], ["alloc_bytes", "", "allocated"],
      ["peak_bytes", "", "peak"], ["live_bytes", "", "live at the end"], ["copy_bytes", "", "copied"], ["gpu", "", "GPU"]]) {
      if (sums.get(name) > 0) figures.push(this.#figure(name, className, words, sums));
    }
    this.box.replaceChildren(...figures);
  }

  #figure(name, className, words, sums, amount) {
    const number = this.model.measure(name);
    const unit = this.model.measures[number].unit;
    const button = element("button", "", className ? element("i", `swatch ${className}`) : "", `${words} `,
      element("b", "", amount ?? format.amount(sums.get(name), unit)));
    button.type = "button";
    button.title = `${this.model.measures[number].label}: ${format.amount(sums.get(name), unit)}. Click to weigh everything by it.`;
    button.addEventListener("click", () => this.onMeasure(number));
    return button;
  }
}
