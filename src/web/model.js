// The profile: what the report's data says, and the sums that the views ask of it.
//
// data.strings              texts that the rest refers to by number
// data.files                {path: [string], library: [0 or 1]}
// data.functions            {name: [string], file: [file], line: [first line, -1: unknown], kind: [number]}
// data.frames               {function: [function], line: [line, -1: unknown]}
// data.stacks               {parent: [stack], frame: [frame]}; a parent's number is lower; stack 0 is empty
// data.measures             [{name, label, unit}]; the first one is the main one
// data.threads              [{name, pid, id}]
// data.entries              {thread: [thread], stack: [stack], values: [per measure: [amount]]}
// data.sources              {file number: {first: [line], text: [[line, …]]}}: runs of source lines

const KIND_PYTHON = 0;

class Model {
  constructor(data) {
    this.data = data;
    this.measures = data.measures;
    this.threads = data.threads;
    this.paths = data.files.path.map((text) => data.strings[text]);
    this.isLibraryFile = data.files.library;
    this.functionNames = data.functions.name.map((text) => data.strings[text]);
    this.functionFile = Uint32Array.from(data.functions.file);
    this.functionLine = Int32Array.from(data.functions.line);
    this.functionKind = Uint8Array.from(data.functions.kind);
    this.frameFunction = Uint32Array.from(data.frames.function);
    this.frameLine = Int32Array.from(data.frames.line);
    this.parent = Uint32Array.from(data.stacks.parent);
    this.frame = Uint32Array.from(data.stacks.frame);
    this.stackCount = this.parent.length;
    this.#linkChildren();
    this.#numberLines();
  }

  /** Children of stack s: childList[childStart[s]] up to childStart[s + 1]. */
  #linkChildren() {
    const start = new Uint32Array(this.stackCount + 2);
    for (let s = 1; s < this.stackCount; s++) start[this.parent[s] + 2]++;
    for (let s = 2; s < start.length; s++) start[s] += start[s - 1];
    this.childList = new Uint32Array(this.stackCount);
    for (let s = 1; s < this.stackCount; s++) this.childList[start[this.parent[s] + 1]++] = s;
    this.childStart = start;
  }

  /** Frames that differ in no more than their columns are one line of one function. */
  #numberLines() {
    const numbers = new Map();
    this.frameLineKey = new Uint32Array(this.frame.length ? this.frameLine.length : 0);
    this.lineFunction = [];
    this.lineNumber = [];
    for (let f = 0; f < this.frameLine.length; f++) {
      const key = this.frameFunction[f] * 0x200000 + this.frameLine[f] + 1;
      let number = numbers.get(key);
      if (number === undefined) {
        number = this.lineFunction.length;
        numbers.set(key, number);
        this.lineFunction.push(this.frameFunction[f]);
        this.lineNumber.push(this.frameLine[f]);
      }
      this.frameLineKey[f] = number;
    }
  }

  isUserFunction(number) {
    return this.functionKind[number] === KIND_PYTHON && !this.isLibraryFile[this.functionFile[number]];
  }

  /** Sums of one measure for one thread (-1: all): `self` and `total` by stack. */
  weigh(measure, thread) {
    const {entries} = this.data;
    const values = entries.values[measure];
    const self = new Float64Array(this.stackCount);
    for (let i = 0; i < values.length; i++) {
      if (thread < 0 || entries.thread[i] === thread) self[entries.stack[i]] += values[i];
    }
    const total = Float64Array.from(self);
    for (let s = this.stackCount - 1; s > 0; s--) total[this.parent[s]] += total[s];
    return {self, total, sum: this.stackCount ? total[0] : 0};
  }

  /** Amount of a measure by thread. */
  threadSums(measure) {
    const {entries} = this.data;
    const sums = new Float64Array(this.threads.length);
    entries.values[measure].forEach((value, i) => { sums[entries.thread[i]] += value; });
    return sums;
  }

  /**
   * Self and total by key, `keyOf` giving each frame's. A key that is on a path twice gets the path's total once.
   * With `charge`, self goes to the innermost frame for which it is true (a path without any stands for itself), and
   * totals to such frames alone.
   */
  sumBy(weights, keyOf, keyCount, charge) {
    const self = new Float64Array(keyCount);
    const total = new Float64Array(keyCount);
    const active = new Uint32Array(keyCount);
    const charged = this.#chargedStacks(charge);
    for (let s = 1; s < this.stackCount; s++) {
      if (weights.self[s] > 0) self[keyOf[this.frame[charged[s]]]] += weights.self[s];
    }
    this.#walk((s) => {
      const key = keyOf[this.frame[s]];
      if (weights.total[s] <= 0) return false;
      // Inside a path without any charged frame only what ends there counts: all below may still find one.
      if (!charge || charge[this.frame[s]]) {
        if (active[key]++ === 0) total[key] += weights.total[s];
      }
      return true;
    }, (s) => {
      if (!charge || charge[this.frame[s]]) active[keyOf[this.frame[s]]]--;
    });
    if (charge) this.#addUncharged(weights, keyOf, total, charge, charged);
    return {self, total};
  }

  /** By stack: the nearest one, from itself outward, whose frame is charged; itself if there is none. */
  #chargedStacks(charge) {
    const charged = new Uint32Array(this.stackCount);
    const found = new Uint8Array(this.stackCount);
    for (let s = 1; s < this.stackCount; s++) {
      const isCharged = !charge || charge[this.frame[s]];
      found[s] = isCharged || found[this.parent[s]] ? 1 : 0;
      charged[s] = isCharged || !found[s] ? s : charged[this.parent[s]];
    }
    this.chargedFound = found;
    return charged;
  }

  /** Paths that end without any charged frame stand for themselves. */
  #addUncharged(weights, keyOf, total, charge, charged) {
    const below = new Float64Array(this.stackCount);
    for (let s = this.stackCount - 1; s > 0; s--) {
      if (this.chargedFound[s]) continue;
      below[s] += weights.self[s];
      below[this.parent[s]] += below[s];
    }
    const active = new Uint32Array(total.length);
    this.#walk((s) => {
      if (this.chargedFound[s] || below[s] <= 0) return false;
      const key = keyOf[this.frame[s]];
      if (active[key]++ === 0) total[key] += below[s];
      return true;
    }, (s) => { active[keyOf[this.frame[s]]]--; });
  }

  /** Depth first: enter(s) says whether to go into its children; leave(s) comes for those entered. */
  #walk(enter, leave) {
    const open = [0];
    const next = [this.childStart[0]];
    while (open.length) {
      const top = open.length - 1;
      const s = open[top];
      if (next[top] < this.childStart[s + 1]) {
        const child = this.childList[next[top]++];
        if (enter(child)) {
          open.push(child);
          next.push(this.childStart[child]);
        }
      } else {
        if (s !== 0) leave(s);
        open.pop();
        next.pop();
      }
    }
  }

  /** Amount in stacks that hold a frame for which `matches` (by function) is true. */
  matched(weights, matches) {
    const holds = new Uint8Array(this.stackCount);
    let sum = 0;
    for (let s = 1; s < this.stackCount; s++) {
      holds[s] = holds[this.parent[s]] || matches[this.frameFunction[this.frame[s]]] ? 1 : 0;
      if (holds[s]) sum += weights.self[s];
    }
    return sum;
  }

  /** By function: whether its name or file holds the words. */
  search(words) {
    const wanted = words.toLowerCase();
    const files = this.paths.map((path) => path.toLowerCase().includes(wanted));
    return Uint8Array.from(this.functionNames,
      (name, i) => (name.toLowerCase().includes(wanted) || files[this.functionFile[i]] ? 1 : 0));
  }
}
