// The memory of a process over time, as a picture: its footprint, the lines that held most, and the peak.

const CHART_HEIGHT = 260;
const CHART_MARGINS = {left: 76, right: 16, top: 18, bottom: 24};
const LINE_COLOURS = ["#d97706", "#7c3aed", "#2563eb", "#db2777", "#65a30d", "#0891b2"];

function svgElement(tag, attributes, ...content) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
}

/** The value of a series at a time: on the line between two points. */
function valueAt({time, bytes}, at) {
  let from = 0;
  let end = time.length;
  while (from < end) {
    const middle = (from + end) >> 1;
    if (time[middle] <= at) from = middle + 1;
    else end = middle;
  }
  if (from === 0) return 0;
  if (from === time.length) return bytes[from - 1];
  const share = (at - time[from - 1]) / (time[from] - time[from - 1]);
  return bytes[from - 1] + share * (bytes[from] - bytes[from - 1]);
}

/** Round numbers from 0 up to most, some `wanted` of them, as multiples of a power of `base`. */
function ticksUpTo(most, wanted, base) {
  const least = most / wanted;
  let step = base ** Math.floor(Math.log(least) / Math.log(base));
  for (const factor of base === 2 ? [1, 2] : [1, 2, 5, 10]) {
    if (step * factor >= least) {
      step *= factor;
      break;
    }
  }
  const ticks = [];
  for (let tick = 0; tick <= most; tick += step) ticks.push(tick);
  return ticks;
}

class MemoryChart {
  constructor(box) {
    this.box = box;
    this.label = element("div", "label");
    this.label.hidden = true;
    box.addEventListener("mousemove", (event) => this.#hover(event));
    box.addEventListener("mouseleave", () => this.#hover(null));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** memory: as the data has it; lines: those to be drawn, with their names. */
  show(memory, lines) {
    this.memory = memory;
    this.lines = lines;
    this.end = Math.max(...[memory, ...lines].map(({time}) => time[time.length - 1] ?? 0), 1);
    this.most = Math.max(memory.peak, ...lines.map(({most}) => most), 1);
    this.draw();
  }

  #x(time) {
    const {left, right} = CHART_MARGINS;
    return left + (time / this.end) * (this.width - left - right);
  }

  #y(bytes) {
    const {top, bottom} = CHART_MARGINS;
    return CHART_HEIGHT - bottom - (bytes / this.most) * (CHART_HEIGHT - top - bottom);
  }

  #points({time, bytes}) {
    return time.map((at, i) => `${this.#x(at).toFixed(1)},${this.#y(bytes[i]).toFixed(1)}`).join(" ");
  }

  draw() {
    this.width = this.box.clientWidth;
    if (!this.memory || this.width === 0) return;
    const {memory} = this;
    const svg = svgElement("svg", {viewBox: `0 0 ${this.width} ${CHART_HEIGHT}`, role: "img", "aria-label": "Memory over time"});
    this.#drawAxes(svg);
    if (memory.time.length) {
      const ground = this.#y(0).toFixed(1);
      const [first, last] = [memory.time[0], memory.time[memory.time.length - 1]].map((time) => this.#x(time).toFixed(1));
      svg.append(svgElement("polygon", {class: "area", points: `${first},${ground} ${this.#points(memory)} ${last},${ground}`}),
        svgElement("polyline", {class: "footprint", points: this.#points(memory)}));
    }
    this.lines.forEach((line, i) => svg.append(svgElement("polyline", {points: this.#points(line), stroke: LINE_COLOURS[i]})));
    this.#drawPeak(svg);
    this.cross = svgElement("line", {class: "cross", y1: CHART_MARGINS.top, y2: this.#y(0), visibility: "hidden"});
    svg.append(this.cross);
    this.box.replaceChildren(svg, this.label);
  }

  #drawAxes(svg) {
    for (const bytes of ticksUpTo(this.most, 5, 2)) {
      const y = this.#y(bytes);
      svg.append(svgElement("line", {class: "grid", x1: CHART_MARGINS.left, x2: this.width - CHART_MARGINS.right, y1: y, y2: y}),
        svgElement("text", {x: CHART_MARGINS.left - 8, y: y + 4, "text-anchor": "end"}, format.bytes(bytes)));
    }
    for (const seconds of ticksUpTo(this.end / 1e9, Math.max(2, Math.floor(this.width / 110)), 10)) {
      svg.append(svgElement("text", {x: this.#x(seconds * 1e9), y: CHART_HEIGHT - 6, "text-anchor": "middle"}, `${Number(seconds.toPrecision(6))} s`));
    }
  }

  #drawPeak(svg) {
    const {peak, peakTime} = this.memory;
    const x = this.#x(Math.min(peakTime, this.end));
    const anchor = x > this.width - 140 ? "end" : "start";
    svg.append(svgElement("circle", {class: "peak", cx: x, cy: this.#y(peak), r: 4}),
      svgElement("text", {class: "peak", x: x + (anchor === "end" ? -8 : 8), y: this.#y(peak) - 5, "text-anchor": anchor}, `peak ${format.bytes(peak)}`));
  }

  /** What was held at the time below the mouse. */
  #hover(event) {
    const {left, right} = CHART_MARGINS;
    const x = event ? event.clientX - this.box.getBoundingClientRect().left : -1;
    const isIn = this.memory && x >= left && x <= this.width - right;
    this.label.hidden = !isIn;
    this.cross?.setAttribute("visibility", isIn ? "visible" : "hidden");
    if (!isIn) return;
    const time = ((x - left) / (this.width - left - right)) * this.end;
    const rows = [`${format.time(time)}: ${format.bytes(Math.round(valueAt(this.memory, time)))}`,
      ...this.lines.map((line) => `${line.name} ${format.bytes(Math.round(valueAt(line, time)))}`)];
    this.cross.setAttribute("x1", x);
    this.cross.setAttribute("x2", x);
    this.label.textContent = rows.join("\n");
    const width = this.label.offsetWidth;
    this.label.style.left = `${x + 14 + width > this.width ? x - 14 - width : x + 14}px`;
    this.label.style.top = `${CHART_MARGINS.top}px`;
  }
}
