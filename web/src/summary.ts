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
  return h("header", {},
    h("div", { class: "masthead" },
      h("span", { class: "brand" }, "Slipstream doctor"),
      h("span", { class: "script" }, page.script),
      h("time", {}, page.began_at.replace("T", " ").slice(0, 16)),
      themeButton()),
    h("h1", {}, report.verdict),
    h("dl", { class: "facts" }, ...facts(page)));
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
    const track = h("td", { class: "track" }, bar(at / scale, (at + ms) / scale, partShade(name)));
    if (ceiling !== null) track.append(mark(ceiling / scale));
    at += ms;
    return h("tr", {}, h("th", { scope: "row" }, name), track,
      h("td", { class: "number" }, milliseconds(ms)), h("td", { class: "number" }, percent(ms / scale)));
  });
  const sum = h("tr", { class: "sum" }, h("th", { scope: "row" }, "step"), h("td", { class: "track" }),
    h("td", { class: "number" }, milliseconds(total)), h("td", { class: "number" }, percent(total / scale)));
  const note = ceiling === null ? null :
    h("p", { class: "note" }, "The dashed line is the ceiling: the step if data were always ready.");
  return section("parts", "Where a step goes", h("table", { class: "bars" }, h("tbody", {}, ...rows, sum)), note);
}

function mark(share: number): HTMLElement {
  const line = h("span", { class: "mark" });
  line.style.left = `${100 * Math.min(1, share)}%`;
  return line;
}
