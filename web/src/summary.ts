// The top of the page: the verdict, the step, and where its time goes.

import { bar, h, section } from "./dom";
import { milliseconds, number, percent, times } from "./format";
import { partShade } from "./kinds";
import { themeButton } from "./theme";
import type { Page } from "./types";

export function header(page: Page): HTMLElement {
  const { report } = page;
  const name = page.script.split(/[\\/]/).pop() ?? page.script;
  document.title = `${name} \u2013 Slipstream doctor`;
  return h(
    "header",
    {},
    h(
      "div",
      { class: "masthead" },
      h("span", { class: "brand" }, "Slipstream doctor"),
      h("span", { class: "script" }, page.script),
      h("time", {}, page.began_at.replace("T", " ").slice(0, 16)),
      themeButton(),
    ),
    h("h1", {}, report.verdict),
    ...report.notes.map((note) => h("p", { class: "caution" }, note)),
    h("dl", { class: "facts" }, ...facts(page)),
  );
}

function facts(page: Page): HTMLElement[] {
  const { step_ms: step, ceiling_ms: ceiling } = page.report;
  const found = [fact("Step", milliseconds(step), `${page.steps.length} steps recorded`)];
  if (ceiling !== null) {
    found.push(fact("Ceiling", milliseconds(ceiling), "the same loop, data always ready"));
    if (ceiling > 0) found.push(fact("Room", times(step / ceiling), "at most this much faster"));
  }
  if (page.pipeline) {
    const rate = (page.pipeline.batch_size * 1000) / step;
    found.push(fact("Samples", `${number(rate)}/s`, `batches of ${page.pipeline.batch_size}`));
  }
  return found;
}

function fact(name: string, value: string, note: string): HTMLElement {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, note));
}

export function waterfall(page: Page): HTMLElement {
  const { parts, step_ms: step, ceiling_ms: ceiling } = page.report;
  const entries = Object.entries(parts);
  const total = entries.reduce((sum, [, ms]) => sum + ms, 0);
  const scale = Math.max(total, step, 1e-9);
  let at = 0;
  const rows = entries.map(([name, ms]) => {
    at += ms;
    return row(name, at - ms, at, scale, partShade(name));
  });
  const sums = [row("step", 0, total, scale, "total")];
  if (ceiling !== null) sums.push(row("ceiling", 0, ceiling, scale, "accent"));
  return section(
    "parts",
    "Where a step goes",
    h("table", { class: "bars" }, h("tbody", {}, ...rows), h("tbody", { class: "sums" }, ...sums)),
  );
}

function row(name: string, start: number, end: number, scale: number, shade: string): HTMLElement {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name),
    h("td", { class: "track" }, bar(start / scale, end / scale, shade)),
    h("td", { class: "number" }, milliseconds(end - start)),
    h("td", { class: "number" }, percent((end - start) / scale)),
  );
}
