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
const CLASS_HIDDEN = 0;
const CLASS_LIBRARY = 1;
const CLASS_USER = 2;

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

  /** Numbers the lines of functions (what the flame graph may be split by), and the lines of files. */
  #numberLines() {
    const functionLine = (f) => this.frameFunction[f] * 0x400000 + this.frameLine[f] + 1;
    const fileLine = (f) => this.functionFile[this.frameFunction[f]] * 0x400000 + this.frameLine[f] + 1;
    [this.frameFunctionLine, this.functionLineFrame] = this.#numberFrames(functionLine);
    [this.frameFileLine, this.fileLineFrame] = this.#numberFrames(fileLine);
  }

  /** The number of each frame, one for equal keys, and a frame of each number. */
  #numberFrames(keyOf) {
    const numbers = new Map();
    const ofFrame = new Uint32Array(this.frameLine.length);
    const oneFrame = [];
    for (let f = 0; f < ofFrame.length; f++) {
      const key = keyOf(f);
      let number = numbers.get(key);
      if (number === undefined) {
        number = oneFrame.length;
        numbers.set(key, number);
        oneFrame.push(f);
      }
      ofFrame[f] = number;
    }
    return [ofFrame, oneFrame];
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

  /** Charges as strobe's other reports do: see sumBy. `all`: library code stands for itself. */
  chargeClasses(all) {
    return Uint8Array.from(this.frameFunction, (number) => {
      if (!this.paths[this.functionFile[number]]) return CLASS_HIDDEN;
      return all || !this.isLibraryFile[this.functionFile[number]] ? CLASS_USER : CLASS_LIBRARY;
    });
  }

  /** Self and total by key, `keyOf` giving each frame's. A key that is on a path twice gets the path's total once. */
  sumBy(weights, keyOf, keyCount) {
    const self = new Float64Array(keyCount);
    const total = new Float64Array(keyCount);
    for (let s = 1; s < this.stackCount; s++) self[keyOf[this.frame[s]]] += weights.self[s];
    this.#addTotals(keyOf, total, weights.total, () => true);
    return {self, total};
  }

  /**
   * The same, with self charged to the innermost frame of user code, totals to frames of user code alone. Paths without
   * any stand for themselves, but never frames without a file. `classes`: from chargeClasses.
   */
  chargeBy(weights, keyOf, keyCount, classes) {
    const self = new Float64Array(keyCount);
    const total = new Float64Array(keyCount);
    const charged = new Uint32Array(this.stackCount);
    const hasUser = new Uint8Array(this.stackCount);
    const without = new Float64Array(this.stackCount);
    for (let s = 1; s < this.stackCount; s++) {
      const own = classes[this.frame[s]];
      hasUser[s] = hasUser[this.parent[s]] || own === CLASS_USER ? 1 : 0;
      charged[s] = own === CLASS_USER || (own === CLASS_LIBRARY && !hasUser[s]) ? s : charged[this.parent[s]];
      if (charged[s]) self[keyOf[this.frame[charged[s]]]] += weights.self[s];
    }
    for (let s = this.stackCount - 1; s > 0; s--) {
      if (hasUser[s]) continue;
      without[s] += weights.self[s];
      without[this.parent[s]] += without[s];
    }
    this.#addTotals(keyOf, total, weights.total, (s) => classes[this.frame[s]] === CLASS_USER);
    this.#addTotals(keyOf, total, without, (s) => !hasUser[s] && classes[this.frame[s]] === CLASS_LIBRARY);
    return {self, total};
  }

  /** Adds each stack's amount to its frame's key, once however often the key is on the path. */
  #addTotals(keyOf, total, amounts, counts) {
    const active = new Uint32Array(total.length);
    this.#walk((s) => {
      if (amounts[s] <= 0) return false;
      if (!counts(s)) return true;
      const key = keyOf[this.frame[s]];
      if (active[key]++ === 0) total[key] += amounts[s];
      return true;
    }, (s) => {
      if (counts(s)) active[keyOf[this.frame[s]]]--;
    });
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
