// A long list of rows of one height, of which only those in sight are in the document.

class VirtualList {
  /** make(row): an element for that row, to be placed at its height. */
  constructor(scroller, rowHeight, make) {
    this.scroller = scroller;
    this.rowHeight = rowHeight;
    this.make = make;
    this.rows = [];
    this.spacer = element("div", "");
    this.shown = new Map();
    scroller.append(this.spacer);
    scroller.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(scroller);
  }

  setRows(rows) {
    this.rows = rows;
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

  scrollTo(index) {
    const middle = index * this.rowHeight - this.scroller.clientHeight / 2 + this.rowHeight / 2;
    this.scroller.scrollTop = Math.max(0, middle);
    this.draw();
  }

  draw() {
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
      made.style.top = `${i * this.rowHeight}px`;
      this.shown.set(i, made);
      this.scroller.append(made);
    }
  }
}
