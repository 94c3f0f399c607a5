// The profile: what the report's data says, and the sums that the views ask of it.
//
// data.strings              texts that the rest refers to by number
// data.files                {path: [string], library: [0 or 1]}
// data.functions            {name: [string], file: [file], line: [first line, -1: unknown], kind: [number]}
// data.frames               {function: [function], line: [line, -1: unknown]}
// data.stacks               {parent: [stack], frame: [frame], class: [of that frame, as it is called there]}; a parent's
//                           number is lower; stack 0 is empty
// data.all                  whether library code stands for itself to begin with
// data.measures             [{name, label, unit}]; the first one is the main one
// data.processes            [{command, pid}]
// data.threads              [{name, process}]
// data.entries              {thread: [thread], stack: [stack], values: [per measure: [amount]],
//                            variances: [per measure: [KiB²], of what is sampled, or null]}
// data.memory               [{process, peak, peakTime, end, resident, inherited, stride, lost, time: [ns], bytes: [footprint],
//                            lines: [{file, line, function, most, time, bytes}], leaks: [{file, line, function, likelihood,
//                            rate (bytes/s), age (s), live, survivors, rises}]}]: paths of files; absent where it was not taken
// data.sources              {file number: {first: [line], text: [[line, …]]}}: runs of source lines

const KIND_PYTHON = 0;
const KIND_NATIVE = 1;

// What a frame is to the views that charge lines: enum frame_class of src/profile. A stack is charged to its
// innermost frame of the highest class in it.
const CLASS_HIDDEN = 0;
const CLASS_NATIVE = 1;
const CLASS_USER = 4;

/** How far a sampled amount may be from the truth in 19 of 20 cases: profile_margin of src/profile. */
function marginOf(bytes, variance) {
  if (!variance) return 0;
  const one = bytes > 0 ? (1.96 * variance) / (bytes / 1024) : 0;
  return 1.96 * 1024 * Math.sqrt(variance + one * one);
}

class Model {
  constructor(data) {
    this.data = data;
    this.measures = data.measures;
    this.measureNumbers = new Map(data.measures.map((measure, number) => [measure.name, number]));
    this.threads = data.threads;
    this.processes = data.processes;
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
    this.weightsOf = new Map();
    this.charges = new Map();
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

  /** A measure's number; undefined when it was not taken. */
  measure(name) {
    return this.measureNumbers.get(name);
  }

  isUserFunction(number) {
    return this.functionKind[number] === KIND_PYTHON && !this.isLibraryFile[this.functionFile[number]];
  }

  /** "app.py:12", "libz.so.1"; "" for what has no file. */
  placeOf(number, line = this.functionLine[number]) {
    const path = this.paths[this.functionFile[number]];
    return path && line > 0 ? `${path}:${line}` : path;
  }

  /** Sums of one measure for one thread (-1: all): `self` and `total` by stack. */
  weigh(measure, thread) {
    // Of the thread that is looked at now, all that was asked for is kept.
    if (this.weighedThread !== thread) this.weightsOf.clear();
    this.weighedThread = thread;
    if (!this.weightsOf.has(measure)) this.weightsOf.set(measure, this.#weigh(measure, thread));
    return this.weightsOf.get(measure);
  }

  #weigh(measure, thread) {
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

  /** How far sums of a measure may be from the truth: variances by stack; null where it is exact. */
  weighVariance(measure, thread) {
    const {entries} = this.data;
    const values = entries.variances[measure];
    if (!values) return null;
    const self = new Float64Array(this.stackCount);
    for (let i = 0; i < values.length; i++) {
      if (thread < 0 || entries.thread[i] === thread) self[entries.stack[i]] += values[i];
    }
    return {self};
  }

  /** Amount of a measure by thread. */
  threadSums(measure) {
    const {entries} = this.data;
    const sums = new Float64Array(this.threads.length);
    entries.values[measure].forEach((value, i) => { sums[entries.thread[i]] += value; });
    return sums;
  }

  /**
   * What stacks are charged to, as strobe's other reports have it: `stack` by stack, 0 when to nothing; `best`: the
   * highest class in it. `all`: library code stands for itself.
   */
  charge(all) {
    if (!this.charges.has(all)) this.charges.set(all, this.#charge(all));
    return this.charges.get(all);
  }

  #charge(all) {
    const classes = Uint8Array.from(this.data.stacks.class, (own) => (all && own > CLASS_NATIVE ? CLASS_USER : own));
    const stack = new Uint32Array(this.stackCount);
    const best = new Uint8Array(this.stackCount);
    for (let s = 1; s < this.stackCount; s++) {
      const own = classes[s];
      best[s] = Math.max(own, best[this.parent[s]]);
      stack[s] = own !== CLASS_HIDDEN && own === best[s] ? s : stack[this.parent[s]];
    }
    return {stack, best, classes};
  }

  /** Self by key, `keyOf` giving each frame's; with a charge: of what the stacks are charged to. */
  selfBy(weights, keyOf, keyCount, charge = null) {
    const self = new Float64Array(keyCount);
    for (let s = 1; s < this.stackCount; s++) {
      const at = charge ? charge.stack[s] : s;
      if (at) self[keyOf[this.frame[at]]] += weights.self[s];
    }
    return self;
  }

  /** Total by key. A key that is on a path twice gets the path's total once. */
  totalBy(weights, keyOf, keyCount, charge = null) {
    if (!charge) return this.#totals(weights, keyOf, keyCount, weights.total, () => true);
    const {stack, best, classes} = charge;
    // What has user code in it is nothing to a caller that has none.
    const sums = Float64Array.from(weights.self, (amount, s) => (stack[s] ? amount : 0));
    for (let s = this.stackCount - 1; s > 0; s--) {
      if (best[this.parent[s]] === best[s]) sums[this.parent[s]] += sums[s];
    }
    const counts = (s) => classes[s] !== CLASS_HIDDEN && classes[s] === best[s];
    return this.#totals(weights, keyOf, keyCount, sums, counts);
  }

  /** Adds each stack's amount to its frame's key, once however often the key is on the path. */
  #totals(weights, keyOf, keyCount, amounts, counts) {
    const total = new Float64Array(keyCount);
    const active = new Uint32Array(keyCount);
    this.#walk((s) => {
      if (weights.total[s] <= 0) return false;
      if (!counts(s)) return true;
      const key = keyOf[this.frame[s]];
      if (active[key]++ === 0) total[key] += amounts[s];
      return true;
    }, (s) => {
      if (counts(s)) active[keyOf[this.frame[s]]]--;
    });
    return total;
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

  /** What native functions cost, by line: key of the line → [{name, place, amount}], largest first. */
  nativesBy(weights, keyOf, charge) {
    const lines = new Map();
    for (let s = 1; s < this.stackCount; s++) {
      const number = this.frameFunction[this.frame[s]];
      if (weights.self[s] <= 0 || this.functionKind[number] !== KIND_NATIVE) continue;
      if (!charge.stack[s] || !this.paths[this.functionFile[number]]) continue;
      const key = keyOf[this.frame[charge.stack[s]]];
      if (!lines.has(key)) lines.set(key, new Map());
      const functions = lines.get(key);
      functions.set(number, (functions.get(number) ?? 0) + weights.self[s]);
    }
    for (const [key, functions] of lines) {
      const rows = [...functions].map(([number, amount]) =>
        ({name: this.functionNames[number], place: format.base(this.placeOf(number)), amount}));
      lines.set(key, rows.sort((a, b) => b.amount - a.amount));
    }
    return lines;
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
