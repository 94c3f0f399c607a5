// The boxes of a flame graph. A box is made only when something asks for its children: of a hundred thousand frames
// no more than fit on the screen are ever asked for.

class Box {
  constructor(parent, key, items) {
    this.parent = parent;
    this.key = key; // number of a function, or of a line; -1: the root
    this.depth = parent ? parent.depth + 1 : 0;
    this.items = items; // stacks that it stands for
    this.amounts = null; // what is counted of each, in the inverted tree
    this.total = 0;
    this.self = 0;
    this.children = null; // largest first, once asked for
  }
}

class FlameTree {
  /** keyOf: by frame. */
  constructor(model, weights, keyOf, inverted) {
    this.model = model;
    this.weights = weights;
    this.keyOf = keyOf;
    this.inverted = inverted;
    this.root = inverted ? this.#invertedRoot() : new Box(null, -1, [0]);
    this.root.total = weights.sum;
  }

  childrenOf(box) {
    if (!box.children) box.children = this.inverted ? this.#callers(box) : this.#callees(box);
    return box.children;
  }

  #sorted(boxes) {
    return [...boxes.values()].sort((a, b) => b.total - a.total || a.key - b.key);
  }

  #callees(box) {
    const {model, weights, keyOf} = this;
    const boxes = new Map();
    for (const stack of box.items) {
      for (let i = model.childStart[stack]; i < model.childStart[stack + 1]; i++) {
        const child = model.childList[i];
        if (weights.total[child] <= 0) continue;
        const made = this.#boxOf(boxes, box, keyOf[model.frame[child]]);
        made.items.push(child);
        made.total += weights.total[child];
        made.self += weights.self[child];
      }
    }
    return this.#sorted(boxes);
  }

  #boxOf(boxes, parent, key) {
    let made = boxes.get(key);
    if (!made) {
      made = new Box(parent, key, []);
      boxes.set(key, made);
    }
    return made;
  }

  #invertedRoot() {
    const root = new Box(null, -1, []);
    root.amounts = [];
    for (let s = 1; s < this.model.stackCount; s++) {
      if (this.weights.self[s] > 0) {
        root.items.push(s);
        root.amounts.push(this.weights.self[s]);
      }
    }
    return root;
  }

  /** Items of an inverted box are the stacks at which its callers are found. */
  #callers(box) {
    const {model, keyOf} = this;
    const boxes = new Map();
    box.items.forEach((stack, i) => {
      if (stack === 0) return;
      const made = this.#boxOf(boxes, box, keyOf[model.frame[stack]]);
      made.amounts ??= [];
      made.items.push(model.parent[stack]);
      made.amounts.push(box.amounts[i]);
      made.total += box.amounts[i];
      if (box.depth === 0) made.self += box.amounts[i];
    });
    return this.#sorted(boxes);
  }
}
