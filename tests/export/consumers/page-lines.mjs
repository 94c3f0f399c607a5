// Prints what each of some HTML reports charges to lines: {file:line: {measure: [self, total]}}, but for zeros; and what
// it says above of each thread.
//
// usage: node page-lines.mjs REPORT.html...
import {openFile, startBrowser} from "./browser.mjs";

const browser = await startBrowser();

/** Of every measure, one after the other. */
function charged() {
  const lines = {};
  const {model} = strobe;
  document.getElementById("tab-lines").click();
  model.measures.forEach(({name}, measure) => {
    const choice = document.getElementById("measure");
    choice.value = measure;
    choice.dispatchEvent(new Event("change"));
    const view = strobe.views.lines;
    for (const file of view.files.values()) {
      for (const [line, key] of file.lines) {
        const amounts = [view.figures.self[measure][key], view.figures.total[key]];
        if (amounts[0] || amounts[1]) (lines[`${model.paths[file.number]}:${line}`] ??= {})[name] = amounts;
      }
    }
  });
  return lines;
}

function summaries() {
  const choice = document.getElementById("thread");
  return Object.fromEntries([...choice.options].map(({value, text}) => {
    choice.value = value;
    choice.dispatchEvent(new Event("change"));
    return [text.split(" (")[0], document.getElementById("summary").textContent];
  }));
}

try {
  for (const report of process.argv.slice(2)) {
    const {page, errors} = await openFile(browser, report);
    console.log(JSON.stringify({lines: await page.evaluate(charged), summaries: await page.evaluate(summaries), errors}));
    await page.close();
  }
} finally {
  await browser.close();
}
