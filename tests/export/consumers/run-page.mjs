// Uses strobe's HTML report of a run, with CPU time in parts, waiting and memory, as a person would, and prints what it
// showed.
//
// usage: node run-page.mjs REPORT.html FOLDER
import {join} from "node:path";
import {openFile, startBrowser} from "./browser.mjs";

const [report, folder] = process.argv.slice(2);
const browser = await startBrowser();

/** What the heads of the columns in a list say, and each row's cells. */
async function tableOf(page, list) {
  return page.evaluate((id) => {
    const scroller = document.getElementById(id);
    const texts = (row) => [...row.children].map((cell) => cell.textContent.trim());
    const rows = [...scroller.querySelectorAll(".row")].sort((a, b) => parseFloat(a.style.top) - parseFloat(b.style.top));
    return {heads: texts(scroller.querySelector(".columns")), rows: rows.map(texts)};
  }, list);
}

/** Clicks each head of the lines' columns and tells whether the rows then descend by it. */
async function sortedByEach(page) {
  const heads = await page.$$eval("#source .columns button.figure", (buttons) => buttons.map((button) => button.dataset.key));
  const results = {};
  for (const key of heads) {
    await page.click("#source .columns button[data-key=line]"); // a column sorts downwards when it is first clicked
    await page.click(`#source .columns button[data-key=${key}]`);
    results[key] = await page.evaluate((id) => {
      const {columns, figures, lineList} = strobe.views.lines;
      const column = columns.list.find((one) => one.id === id);
      const values = lineList.rows.map((row) => column.value(figures, row.key));
      return {isSorted: columns.sorted?.id === id, values};
    }, key);
  }
  return results;
}

async function lines(page) {
  await page.keyboard.press("2");
  const sums = await page.evaluate(() => {
    const view = strobe.views.lines;
    return [...view.files.values()].flatMap((file) => [...file.lines].map(([line, key]) => ({
      file: strobe.model.paths[file.number], line, total: view.figures.total[key],
      self: Object.fromEntries(strobe.model.measures.map(({name}, measure) => [name, view.figures.self[measure][key]])),
    })));
  });
  await page.locator(".file", {hasText: "crunch.py"}).click();
  const shown = await tableOf(page, "source");
  await page.click(".menu summary >> visible=true");
  await page.locator("#line-menu label", {hasText: "copied"}).click();
  const withCopied = (await tableOf(page, "source")).heads;
  await page.click(".menu summary >> visible=true");
  await page.locator(".file", {hasText: "All files"}).click();
  return {sums, shown, withCopied, sorted: await sortedByEach(page)};
}

async function functions(page) {
  await page.keyboard.press("3");
  await page.click("#functions .columns button[data-key=self]"); // upwards
  await page.click("#functions .columns button[data-key=self]"); // and back
  const first = await page.evaluate(() => strobe.model.functionNames[strobe.views.functions.rows[0].number]);
  await page.locator("#functions .what", {hasText: "smooth"}).click();
  const opened = await page.evaluate(() => ({shown: strobe.shown, target: strobe.views.lines.target}));
  await page.keyboard.press("3");
  await page.focus("#functions");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  const current = await page.evaluate(() => strobe.views.functions.list.current);
  await page.keyboard.press("Enter");
  return {first, opened, keyboard: {current, shown: await page.evaluate(() => strobe.shown)}};
}

async function threads(page) {
  await page.keyboard.press("4");
  const table = await tableOf(page, "threads");
  await page.locator("#threads .what", {hasText: "store-1"}).click();
  const alone = await page.evaluate(() => strobe.weights.sum);
  await page.selectOption("#thread", "-1");
  return {table, alone};
}

/** The root and the boxes below it, for each measure. */
async function flame(page) {
  await page.keyboard.press("1");
  const names = await page.$$eval("#measure option", (options) => options.map((option) => option.value));
  const roots = {};
  for (const value of names) {
    await page.selectOption("#measure", value);
    const [name, total] = await page.evaluate(() => [strobe.model.measures[strobe.measure].name, strobe.flame.tree.root.total]);
    roots[name] = total;
  }
  await page.click("#summary button >> text=native");
  const chosen = await page.evaluate(() => strobe.model.measures[strobe.measure].name);
  await page.selectOption("#measure", "0");
  const bounds = await page.locator("#flame canvas").boundingBox();
  await page.mouse.move(bounds.x + 20, bounds.y + 28);
  const tooltip = await page.$$eval("#tooltip tr", (rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));
  return {roots, chosen, tooltip};
}

try {
  const {page, errors} = await openFile(browser, report, {colorScheme: "light"});
  const seen = {
    summary: await page.$$eval("#summary button", (buttons) => buttons.map((button) => button.textContent)),
    lines: await lines(page), functions: await functions(page), threads: await threads(page), flame: await flame(page),
  };
  await page.screenshot({path: join(folder, "run-light.png")});
  const dark = await openFile(browser, report, {colorScheme: "dark"});
  await dark.page.keyboard.press("2");
  await dark.page.screenshot({path: join(folder, "run-dark.png")});
  console.log(JSON.stringify({...seen, errors: [...errors, ...dark.errors]}));
} finally {
  await browser.close();
}
