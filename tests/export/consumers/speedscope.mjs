// Gives each file to speedscope, in a browser as its users have it, and prints what speedscope made of it: its own
// export of what it imported, one JSON document a line.
//
// usage: node speedscope.mjs FILE...
import {createRequire} from "node:module";
import {dirname, join} from "node:path";
import {readFile} from "node:fs/promises";
import {openFile, startBrowser} from "./browser.mjs";

const require = createRequire(import.meta.url);
const release = join(dirname(require.resolve("speedscope/package.json")), "dist", "release", "index.html");

async function importFile(browser, path) {
  const {page, errors} = await openFile(browser, release);
  page.on("dialog", (dialog) => {
    errors.push(dialog.message());
    void dialog.dismiss();
  });
  await page.setInputFiles("input[type=file]", path);
  // It draws when it has understood the file.
  await page.waitForSelector("canvas");
  const download = page.waitForEvent("download");
  await page.keyboard.press("Control+s");
  const exported = await readFile(await (await download).path(), "utf8");
  await page.close();
  return {imported: JSON.parse(exported), errors};
}

const browser = await startBrowser();
try {
  for (const path of process.argv.slice(2)) console.log(JSON.stringify(await importFile(browser, path)));
} finally {
  await browser.close();
}
