// Processes and their threads, with what each cost.

const THREAD_NAME_WIDTH = 420;

class ThreadView extends View {
  /** onChoose(thread): its name was clicked. */
  constructor(model, onChoose) {
    super(model);
    this.onChoose = onChoose;
    this.scroller = document.getElementById("threads");
    this.columns = new Columns(model, () => this.#sort());
    this.columns.hasTotal = false;
    this.columns.sorted = {id: "self", isUp: false};
    this.head = element("div", "columns");
    this.list = new VirtualList(this.scroller, 24, (row) => this.#row(row), {
      head: this.head,
      onEnter: (index) => { if (this.list.rows[index].thread >= 0) this.onChoose(this.list.rows[index].thread); },
    });
    new ResizeObserver(() => this.#resize()).observe(this.scroller);
  }

  setSearch() {}

  draw() {
    this.list.draw();
  }

  /** Keys of the figures: the threads, then the processes. */
  update() {
    const {model} = this;
    const {threads, processes} = model;
    const self = model.measures.map((_, measure) => {
      const sums = new Float64Array(threads.length + processes.length);
      model.threadSums(measure).forEach((amount, thread) => {
        sums[thread] += amount;
        sums[threads.length + threads[thread].process] += amount;
      });
      return sums;
    });
    const sums = self.map((amounts) => amounts.subarray(0, threads.length).reduce((sum, amount) => sum + amount, 0));
    this.figures = new Figures(self, null, sums);
    this.columns.setMeasure(this.measure, sums);
    this.#sort();
  }

  #resize(draws = true) {
    if (!this.figures) return;
    this.visible = this.columns.visible(this.scroller.clientWidth - THREAD_NAME_WIDTH);
    this.head.replaceChildren(...this.columns.heads(this.visible), this.columns.head({id: "name", title: "thread", className: "what"}));
    if (draws) this.list.refresh();
  }

  /** Each process is followed by its threads. */
  #sort() {
    const {threads, processes} = this.model;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const sort = (rows, name) => this.columns.sort(rows, this.figures, (row) => row.key, {name: (a, b) => compare(name(a), name(b))});
    const ofThreads = threads.map((thread, number) => ({key: number, thread: number, process: thread.process}));
    sort(ofThreads, (row) => threads[row.thread].name);
    let rows = ofThreads;
    if (processes.length > 1) {
      const ofProcesses = processes.map((_, number) => ({key: threads.length + number, thread: -1, process: number}));
      sort(ofProcesses, (row) => processes[row.process].pid);
      rows = ofProcesses.flatMap((row) => [row, ...ofThreads.filter((thread) => thread.process === row.process)]);
    }
    this.#resize(false);
    this.list.setRows(rows);
  }

  #row(row) {
    const {threads, processes} = this.model;
    const cells = this.columns.cells(this.visible, this.figures, row.key);
    if (row.thread < 0) {
      const process = processes[row.process];
      return element("div", "row function process", ...cells, element("span", "what", `${process.pid}  ${process.command}`));
    }
    const name = element("span", "what", threads[row.thread].name);
    name.title = `${threads[row.thread].name}\nShow this thread alone`;
    name.addEventListener("click", () => this.onChoose(row.thread));
    return element("div", `row function${processes.length > 1 ? " of-process" : ""}`, ...cells, name);
  }
}
