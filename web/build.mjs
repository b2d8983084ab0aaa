// Bundles src/ into one sealed page. With --check: says whether the committed page is that page.

import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const page = join(here, "../src/slipstream/doctor/page.html");

// The same as in tests/doctor/test_page_is_fresh.py, which needs no Node.
function sourceHash() {
  const files = readdirSync(join(here, "src"))
    .sort()
    .map((name) => `src/${name}`);
  const hash = createHash("sha256");
  for (const name of [...files, "build.mjs", "package-lock.json"]) {
    hash.update(`${name}\n`);
    hash.update(readFileSync(join(here, name)));
  }
  return hash.digest("hex");
}

async function bundle(entry, options = {}) {
  const result = await build({
    entryPoints: [join(here, "src", entry)],
    bundle: true,
    minify: true,
    write: false,
    charset: "ascii",
    target: ["chrome109", "firefox110", "safari16"],
    legalComments: "none",
    ...options,
  });
  return result.outputFiles[0].text.trim();
}

const csp = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

async function makePage() {
  const script = await bundle("main.ts", { format: "iife" });
  const style = await bundle("style.css");
  if (/<\/(script|style)/i.test(script + style)) throw new Error("the bundle would end its own element");
  const policy = [
    "default-src 'none'",
    `script-src ${csp(script)}`,
    `style-src ${csp(style)}`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  const values = { policy, style, script, source: sourceHash() };
  const template = readFileSync(join(here, "src/page.html"), "utf8");
  return template.replace(/\{\{(\w+)\}\}/g, (_, name) => values[name]);
}

if (process.argv.includes("--check")) {
  if ((await makePage()) !== readFileSync(page, "utf8")) {
    console.error("src/slipstream/doctor/page.html is not what web/ builds. Run: make web");
    process.exit(1);
  }
} else {
  const text = await makePage();
  writeFileSync(page, text);
  console.log(`${page}: ${text.length} bytes`);
}
