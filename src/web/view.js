// What the views beside the flame graph have in common: they are made anew only when they are looked at.

class View {
  constructor(model) {
    this.model = model;
    this.isStale = true;
  }

  /** Of the measure and thread that are chosen. */
  setWeights(measure, thread) {
    this.measure = measure;
    this.thread = thread;
    this.isStale = true;
  }

  setSearch(found) {
    this.found = found;
    this.isStale = true;
  }

  show() {
    this.freshen();
    this.draw();
  }

  freshen() {
    if (!this.isStale) return;
    this.isStale = false;
    this.update();
  }
}
