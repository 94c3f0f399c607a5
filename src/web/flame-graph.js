// The flame graph: boxes of a FlameTree on a canvas, the outermost call on top. Only boxes wide enough to be seen are
// laid out, and only rows in sight are drawn.

const FLAME_ROW = 19;
const FLAME_MIN_WIDTH = 0.4; // pixels; narrower ones become one grey strip

class FlameGraph {
  /** describe(box): {name, isUser, isPython, key}; onSelect(box), onZoom(box): told of what happens. */
  constructor(scroller, describe, {onHover, onZoom}) {
    this.scroller = scroller;
    this.canvas = scroller.querySelector("canvas");
    this.spacer = scroller.querySelector(".spacer");
    this.context = this.canvas.getContext("2d");
    this.describe = describe;
    this.onHover = onHover;
    this.onZoom = onZoom;
    this.rows = [];
    this.matches = null;
    this.current = null;
    scroller.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.layout()).observe(scroller);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.canvas.addEventListener("mousemove", (event) => this.#hover(event));
    this.canvas.addEventListener("mouseleave", () => this.#point(null, null));
    this.canvas.addEventListener("click", (event) => this.#click(event));
    scroller.addEventListener("keydown", (event) => this.#key(event));
  }

  setTree(tree) {
    this.tree = tree;
    this.zoomed = tree.root;
    this.current = null;
    this.scroller.scrollTop = 0;
    this.layout();
  }

  /** matches(box): whether the search found it; null: no search. */
  setMatches(matches) {
    this.matches = matches;
    this.draw();
  }

  zoom(box) {
    this.zoomed = box;
    this.current = box;
    this.layout();
    this.onZoom(box);
  }

  /** Rows of {box, left, width}; those above the zoomed box are its callers, at full width. */
  layout() {
    if (!this.tree) return;
    const width = this.scroller.clientWidth;
    this.rows = [];
    for (let box = this.zoomed; box; box = box.parent) this.rows.unshift([{box, left: 0, width}]);
    this.#layoutBelow(this.zoomed, width);
    this.spacer.style.height = `${this.rows.length * FLAME_ROW + 8}px`;
    this.#resize(width);
    this.draw();
  }

  #layoutBelow(top, width) {
    let row = [{box: top, left: 0, width}];
    while (row.length) {
      const below = [];
      for (const place of row) this.#layoutChildren(place, below);
      if (below.length) this.rows.push(below);
      row = below.filter((place) => place.box);
    }
  }

  #layoutChildren({box, left, width}, below) {
    if (box.total <= 0) return;
    const scale = width / box.total;
    const children = this.tree.childrenOf(box);
    for (let i = 0; i < children.length; i++) {
      const childWidth = children[i].total * scale;
      if (childWidth < FLAME_MIN_WIDTH) {
        // The largest come first: all the others are as narrow.
        let rest = 0;
        for (; i < children.length; i++) rest += children[i].total;
        if (rest * scale >= FLAME_MIN_WIDTH) below.push({box: null, left, width: rest * scale});
        return;
      }
      below.push({box: children[i], left, width: childWidth});
      left += childWidth;
    }
  }

  #resize(width) {
    const ratio = window.devicePixelRatio || 1;
    const height = this.scroller.clientHeight;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  draw() {
    if (!this.tree) return;
    const {context} = this;
    const style = getComputedStyle(document.documentElement);
    const height = this.scroller.clientHeight;
    const first = Math.floor(this.scroller.scrollTop / FLAME_ROW);
    const last = Math.min(this.rows.length, first + Math.ceil(height / FLAME_ROW) + 1);
    this.colours = {
      dark: matchMedia("(prefers-color-scheme: dark)").matches,
      hit: style.getPropertyValue("--hit"),
      edge: style.getPropertyValue("--edge"),
      ink: style.getPropertyValue("--ink"),
    };
    context.clearRect(0, 0, this.scroller.clientWidth, height);
    context.font = `12px ${style.getPropertyValue("--mono")}`;
    context.textBaseline = "middle";
    this.characterWidth = context.measureText("mmmmmmmmmm").width / 10;
    for (let i = first; i < last; i++) {
      const top = i * FLAME_ROW - this.scroller.scrollTop;
      for (const place of this.rows[i]) this.#drawBox(place, top, i);
    }
  }

  #drawBox({box, left, width}, top, depth) {
    const {context} = this;
    const gap = width > 3 ? 1 : 0;
    if (!box) {
      context.fillStyle = this.colours.edge;
      context.fillRect(left, top, width, FLAME_ROW - 1);
      return;
    }
    const about = this.describe(box);
    const found = this.matches && box.key >= 0 && this.matches(box);
    const above = depth < this.zoomed.depth;
    context.globalAlpha = above ? 0.55 : this.matches && !found ? 0.4 : 1;
    context.fillStyle = found ? this.colours.hit : boxColour(about, this.colours.dark);
    context.fillRect(left, top, Math.max(width - gap, FLAME_MIN_WIDTH), FLAME_ROW - 1);
    if (box === this.current) {
      context.globalAlpha = 1;
      context.strokeStyle = this.colours.ink;
      context.lineWidth = 2;
      context.strokeRect(left + 1, top + 1, Math.max(width - gap - 2, 1), FLAME_ROW - 3);
    }
    this.#drawText(about.name, left, top, width, found);
    context.globalAlpha = 1;
  }

  #drawText(name, left, top, width, found) {
    const {context} = this;
    const room = Math.floor((width - 10) / this.characterWidth);
    if (room < 2) return;
    const text = name.length <= room ? name : `${name.slice(0, room - 1)}…`;
    context.fillStyle = found ? "#fff" : this.colours.dark ? "#f5f0eb" : "#1c1917";
    // Only these characters are surely as wide as was reckoned.
    if (/^[\x20-\x7e…]*$/.test(text)) {
      context.fillText(text, left + 5, top + FLAME_ROW / 2);
      return;
    }
    context.save();
    context.beginPath();
    context.rect(left, top, width - 3, FLAME_ROW);
    context.clip();
    context.fillText(text, left + 5, top + FLAME_ROW / 2);
    context.restore();
  }

  #at(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const row = this.rows[Math.floor((event.clientY - bounds.top + this.scroller.scrollTop) / FLAME_ROW)];
    const place = row?.find(({left, width}) => x >= left && x < left + width);
    return place?.box ?? null;
  }

  #hover(event) {
    const box = this.#at(event);
    this.canvas.style.cursor = box ? "pointer" : "default";
    this.#point(box, event);
  }

  #point(box, event) {
    if (box !== this.current) {
      this.current = box;
      this.draw();
    }
    this.onHover(box, event);
  }

  #click(event) {
    const box = this.#at(event);
    this.scroller.focus({preventScroll: true});
    if (box) this.zoom(box);
  }

  #key(event) {
    const step = {ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right"}[event.key];
    if (step) this.#step(step);
    else if (event.key === "Enter" && this.current) this.zoom(this.current);
    else if (event.key === "Escape") this.zoom(this.tree.root);
    else return;
    event.preventDefault();
  }

  #step(step) {
    const box = this.current ?? this.zoomed;
    const siblings = box.parent ? this.tree.childrenOf(box.parent) : [box];
    const place = siblings.indexOf(box);
    const to = {
      up: box.parent,
      down: this.tree.childrenOf(box)[0],
      left: siblings[place - 1],
      right: siblings[place + 1],
    }[step];
    if (!to) return;
    this.current = to;
    const top = to.depth * FLAME_ROW;
    const {scroller} = this;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    if (top + FLAME_ROW > scroller.scrollTop + scroller.clientHeight) {
      scroller.scrollTop = top + FLAME_ROW - scroller.clientHeight;
    }
    this.draw();
    this.onHover(to, null);
  }
}

/** User code is warm, library code cool, what is no Python grey; a function has the same shade everywhere. */
function boxColour({isRoot, isUser, isPython, hash}, dark) {
  if (isRoot) return dark ? "#3a342f" : "#e7e2dc";
  const light = (day, night) => (dark ? night : day);
  if (!isPython) return `hsl(265 12% ${light(74, 34) + (hash % 8)}%)`;
  if (!isUser) return `hsl(${196 + (hash % 34)} ${light(40, 28)}% ${light(74, 33) + ((hash >> 6) % 8)}%)`;
  return `hsl(${16 + (hash % 32)} ${light(84, 62)}% ${light(63, 36) + ((hash >> 6) % 9)}%)`;
}

function hashText(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return (hash >>> 8) & 0xffff;
}
