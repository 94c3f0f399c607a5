// Looks at the memory in strobe's HTML report, as a person would, and prints what it showed; of a report without any, that
// there is none.
//
// usage: node memory-page.mjs REPORT.html FOLDER
import {join} from "node:path";
import {openFile, startBrowser} from "./browser.mjs";

const [report, folder] = process.argv.slice(2);
const browser = await startBrowser();

const rowsOf = (page, table) =>
  page.$$eval(`#${table} tbody tr`, (rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));

async function overview(page) {
  return {
    tabs: await page.$$eval("#tabs button:not([hidden])", (tabs) => tabs.map((tab) => tab.textContent)),
    switch: await page.$$eval("#flame-measures:not([hidden]) button", (buttons) => buttons.map((button) => button.textContent)),
    first: await page.evaluate(() => strobe.model.measures[0].name),
    measures: await page.evaluate(() => Object.fromEntries(strobe.model.measures.map(({name}, measure) =>
      [name, strobe.model.weigh(measure, -1).sum]).filter(([, sum]) => sum > 0))),
  };
}

async function memory(page) {
  await page.keyboard.press("5");
  const chart = await page.locator("#memory-chart").boundingBox();
  const [left, right] = await page.evaluate(() => [CHART_MARGINS.left, CHART_MARGINS.right]);
  await page.mouse.move(chart.x + left + (chart.width - left - right) / 2, chart.y + 100);
  const seen = {
    facts: await page.textContent("#memory-facts"),
    legend: await page.$$eval("#memory-legend > *", (items) => items.map((item) => item.textContent.trim())),
    polylines: await page.locator("#memory-chart polyline").count(),
    hover: (await page.textContent("#memory-chart .label")).split("\n"),
    leaks: await rowsOf(page, "memory-leaks"), peak: await rowsOf(page, "memory-peak"),
  };
  await page.screenshot({path: join(folder, "memory-light.png")});
  await page.click("#memory-leaks td button");
  seen.opened = await page.evaluate(() => ({shown: strobe.shown, target: strobe.views.lines.target}));
  await page.selectOption("#measure", {label: "live at the end"});
  seen.lines = await page.evaluate(() => {
    const rows = [...document.querySelectorAll("#source .row")].sort((a, b) => parseFloat(a.style.top) - parseFloat(b.style.top));
    return rows.map((row) => [...row.children].map((cell) => cell.textContent.trim()));
  });
  await page.keyboard.press("5");
  await page.click("#memory-flame");
  seen.flame = await page.evaluate(() => ({
    shown: strobe.shown, measure: strobe.model.measures[strobe.measure].name, total: strobe.flame.tree.root.total,
    pressed: [...document.querySelectorAll("#flame-measures [aria-pressed=true]")].map((button) => button.textContent),
  }));
  return seen;
}

try {
  const {page, errors} = await openFile(browser, report, {colorScheme: "light"});
  const seen = await overview(page);
  if (seen.tabs.includes("Memory")) {
    Object.assign(seen, await memory(page));
    const dark = await openFile(browser, report, {colorScheme: "dark"});
    await dark.page.keyboard.press("5");
    await dark.page.screenshot({path: join(folder, "memory-dark.png")});
    errors.push(...dark.errors);
  }
  console.log(JSON.stringify({...seen, errors}));
} finally {
  await browser.close();
}
