// Uses strobe's HTML report as a person would, and prints what it showed.
//
// usage: node page.mjs REPORT.html FOLDER [--large]
import {join} from "node:path";
import {openFile, startBrowser} from "./browser.mjs";

const [report, folder, mode] = process.argv.slice(2);
const browser = await startBrowser();
const {page, errors} = await openFile(browser, report);
let dialogs = 0;
page.on("dialog", (dialog) => {
  dialogs++;
  void dialog.dismiss();
});

/** Milliseconds until the page has done it and drawn. */
async function timed(action) {
  const start = performance.now();
  await action();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));
  return Math.round(performance.now() - start);
}

async function search(words) {
  await page.fill("#search", words);
  await page.waitForFunction((wanted) => strobe.searched === wanted, words);
  return page.textContent("#matches");
}

async function small() {
  const functions = async () => {
    await page.click("#tab-functions");
    return page.evaluate(() => strobe.views.functions.rows.map((row) =>
      ({name: strobe.model.functionNames[row.number], self: row.self, total: row.total})));
  };
  const lines = async () => {
    await page.click("#tab-lines");
    return page.evaluate(() => [...strobe.views.lines.files.values()].flatMap((file) =>
      [...file.lines].map(([line, key]) => ({
        file: strobe.model.paths[file.number], line,
        self: strobe.views.lines.figures.self[0][key], total: strobe.views.lines.figures.total[key],
      }))));
  };
  const source = async () => {
    await page.locator(".file", {hasText: "app.py"}).first().click();
    return page.evaluate(() => strobe.views.lines.lineList.rows.map((row) => ({text: row.text})));
  };
  const threads = async () => {
    await page.click("#tab-flame");
    const sums = [];
    for (let i = 0; i < 3; i++) {
      await page.selectOption("#thread", String(i));
      sums.push(await page.evaluate(() => strobe.flame.tree.root.total));
    }
    await page.selectOption("#thread", "-1");
    return sums;
  };
  const zoomed = async () => {
    const bounds = await page.locator("#flame canvas").boundingBox();
    await page.mouse.click(bounds.x + 20, bounds.y + 28);
    const state = await page.evaluate(() => {
      const rows = strobe.flame.rows;
      const box = strobe.flame.zoomed;
      return {key: box.key, width: rows[box.depth][0].width, all: rows[0][0].width};
    });
    await page.keyboard.press("Escape");
    return {...state, back: await page.evaluate(() => strobe.flame.zoomed.key)};
  };
  const inverted = async () => {
    await page.check("#inverted");
    const boxes = await page.evaluate(() => strobe.flame.tree.childrenOf(strobe.flame.tree.root).map((box) =>
      [strobe.model.functionNames[box.key], box.total]));
    await page.uncheck("#inverted");
    return boxes;
  };
  return {
    command: await page.textContent("#command"),
    functions: await functions(),
    lines: await lines(),
    source: await source(),
    threads: await threads(),
    zoomed: await zoomed(),
    inverted: await inverted(),
    search: {leaf: await search("leaf"), "alert(1)": await search("alert(1)")},
  };
}

async function large() {
  const milliseconds = {
    load: await timed(() => page.reload()),
    functions: await timed(() => page.click("#tab-functions")),
    lines: await timed(() => page.click("#tab-lines")),
    allFiles: await timed(() => page.locator(".file", {hasText: "All files"}).click()),
    sorted: await timed(() => page.locator("#source .columns button", {hasText: "line"}).click()),
    threads: await timed(() => page.click("#tab-threads")),
    flame: await timed(() => page.click("#tab-flame")),
    inverted: await timed(() => page.check("#inverted")),
    byLine: await timed(() => page.check("#by-line")),
    search: await timed(() => search("function_12")),
    hover: await timed(() => page.mouse.move(300, 300)),
  };
  return {
    milliseconds,
    functions: await page.evaluate(() => strobe.model.functionNames.length - 1),
    elements: await page.evaluate(() => document.querySelectorAll("*").length),
  };
}

try {
  const seen = await (mode === "--large" ? large() : small());
  await page.screenshot({path: join(folder, "page.png")});
  console.log(JSON.stringify({...seen, errors, dialogs}));
} finally {
  await browser.close();
}
