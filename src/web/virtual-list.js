// A long list of rows of one height, of which only those in sight are in the document. Arrow keys move through it.

class VirtualList {
  /** make(row, index): an element for that row, to be placed at its height. head: stays above the rows. onMove(index):
   * a key went there; onEnter(index): the Enter key. */
  constructor(scroller, rowHeight, make, {head = null, onMove = null, onEnter = null} = {}) {
    this.scroller = scroller;
    this.rowHeight = rowHeight;
    this.make = make;
    this.head = head;
    this.onMove = onMove;
    this.onEnter = onEnter;
    this.rows = [];
    this.current = -1;
    this.spacer = element("div", "");
    this.shown = new Map();
    if (head) scroller.append(head);
    scroller.append(this.spacer);
    scroller.addEventListener("scroll", () => this.draw());
    scroller.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(scroller);
  }

  setRows(rows) {
    this.rows = rows;
    this.current = -1;
    this.refresh();
  }

  /** Makes what is in sight again. */
  refresh() {
    for (const made of this.shown.values()) made.remove();
    this.shown.clear();
    // Browsers end at some 33 million pixels; no more rows than that can be scrolled to.
    this.spacer.style.height = `${Math.min(this.rows.length * this.rowHeight, 3e7)}px`;
    this.draw();
  }

  #headHeight() {
    return this.head ? this.head.offsetHeight : 0;
  }

  scrollTo(index) {
    const room = this.scroller.clientHeight - this.#headHeight();
    this.scroller.scrollTop = Math.max(0, index * this.rowHeight - room / 2 + this.rowHeight / 2);
    this.draw();
  }

  /** The least scrolling that shows a row. */
  #reveal(index) {
    const room = this.scroller.clientHeight - this.#headHeight();
    const top = index * this.rowHeight;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    if (top + this.rowHeight > this.scroller.scrollTop + room) this.scroller.scrollTop = top + this.rowHeight - room;
    this.draw();
  }

  /** Marks a row as the one that keys act on; -1: none. */
  setCurrent(index) {
    this.shown.get(this.current)?.classList.remove("current");
    this.current = index;
    this.shown.get(index)?.classList.add("current");
  }

  #key(event) {
    if (event.target !== this.scroller || event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.rowHeight) - 2);
    const step = {ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity}[event.key];
    if (step !== undefined && this.rows.length) {
      const to = Math.min(this.rows.length - 1, Math.max(0, (this.current < 0 ? (step > 0 ? -1 : 0) : this.current) + step));
      this.#reveal(to);
      this.setCurrent(to);
      if (this.onMove) this.onMove(to);
    } else if (event.key === "Enter" && this.current >= 0 && this.onEnter) {
      this.onEnter(this.current);
    } else {
      return;
    }
    event.preventDefault();
  }

  draw() {
    const offset = this.#headHeight();
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / this.rowHeight) - 4);
    const count = Math.ceil(this.scroller.clientHeight / this.rowHeight) + 8;
    const last = Math.min(this.rows.length, first + count);
    for (const [index, made] of this.shown) {
      if (index < first || index >= last) {
        made.remove();
        this.shown.delete(index);
      }
    }
    for (let i = first; i < last; i++) {
      if (this.shown.has(i)) continue;
      const made = this.make(this.rows[i], i);
      made.style.top = `${offset + i * this.rowHeight}px`;
      made.classList.toggle("current", i === this.current);
      this.shown.set(i, made);
      this.scroller.append(made);
    }
  }
}
