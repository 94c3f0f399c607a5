// A headless Chromium that asks nothing of any network.
import {chromium} from "playwright-core";

const QUIET = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

export function startBrowser() {
  return chromium.launch({executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: QUIET});
}

/** Opens a file; gives its page, and a list into which everything goes that the page complains of. */
export async function openFile(browser, path, options = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, acceptDownloads: true, ...options});
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    // The software renderer's remarks on its own speed.
    const isNoise = message.text().includes("GL Driver Message");
    if (["error", "warning"].includes(message.type()) && !isNoise) errors.push(message.text());
  });
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) errors.push(`asked the network for ${request.url()}`);
  });
  await page.goto(`file://${path}`);
  return {page, errors};
}
