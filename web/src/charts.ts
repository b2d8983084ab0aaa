// The ladder, memory over time, the storage, what is healthy, and the foot of the page.

import { scaleLinear } from "d3-scale";
import { area, line } from "d3-shape";
import { bar, h, section, svg } from "./dom";
import { milliseconds, number } from "./format";
import type { Page } from "./types";

export function ladder({ ladder, report }: Page): HTMLElement | null {
  if (ladder.length === 0) return null;
  const most = Math.max(...ladder.map((rung) => Math.max(rung.ms, rung.high)));
  const rows = ladder.map((rung, index) => {
    const added = index === 0 ? null : rung.ms - ladder[index - 1]!.ms;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, rung.name),
      h(
        "td",
        { class: "track" },
        bar(0, rung.ms / most, "rung"),
        bar(rung.low / most, rung.high / most, "whisker"),
      ),
      h("td", { class: "number" }, milliseconds(rung.ms)),
      h(
        "td",
        { class: "number" },
        added === null ? "" : `${added < 0 ? "\u2212" : "+"}${number(Math.abs(added))}`,
      ),
    );
  });
  const note = `A step with parts of loading taken away, from bare compute up; the recorded step took ${milliseconds(report.step_ms)}. Lines are 95 % intervals.`;
  return section(
    "ladder",
    "Ladder",
    h("p", { class: "note" }, note),
    h("table", { class: "bars" }, h("tbody", {}, ...rows)),
  );
}

const HEIGHT = 180,
  LEFT = 52,
  BOTTOM = 22;
type Point = Page["memory"][number];

export function memory({ memory }: Page): HTMLElement | null {
  if (memory.length < 2) return null;
  const peak = Math.max(...memory.map(([, resident]) => resident));
  const devicePeak = Math.max(...memory.map(([, , onDevice]) => onDevice ?? 0));
  const label = `Memory over time, at most ${number(peak)} MB resident`;
  const chart = svg("svg", { height: HEIGHT, role: "img", "aria-label": label });
  new ResizeObserver(() =>
    chart.replaceChildren(...curves(memory, Math.max(peak, devicePeak), chart.clientWidth)),
  ).observe(chart);
  const legend = h(
    "p",
    { class: "legend" },
    key("resident", `resident, at most ${number(peak)} MB`),
    devicePeak ? key("on-device", `on the device, at most ${number(devicePeak)} MB`) : null,
  );
  return section("memory", "Memory, MB", h("figure", { class: "chart" }, chart), legend);
}

function curves(memory: Point[], most: number, width: number): SVGElement[] {
  const x = scaleLinear([memory[0]![0], memory[memory.length - 1]![0]], [LEFT, width - 4]);
  const y = scaleLinear([0, most], [HEIGHT - BOTTOM, 8]).nice(4);
  const below = area<Point>()
    .x((point) => x(point[0]))
    .y0(y(0))
    .y1((point) => y(point[1]));
  const over = line<Point>()
    .defined((point) => point[2] !== null)
    .x((point) => x(point[0]))
    .y((point) => y(point[2] ?? 0));
  const rows = y
    .ticks(4)
    .flatMap((tick) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - 4, y1: y(tick), y2: y(tick) }),
      svg("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, tick.toLocaleString("en-US")),
    ]);
  const columns = x
    .ticks(Math.max(2, width / 140))
    .map((tick) => svg("text", { x: x(tick), y: HEIGHT - 4, "text-anchor": "middle" }, `${tick / 1000} s`));
  return [
    ...rows,
    ...columns,
    svg("path", { class: "resident", d: below(memory) ?? "" }),
    svg("path", { class: "on-device", d: over(memory) ?? "" }),
  ];
}

export function key(className: string, text: string): HTMLElement {
  return h("span", { class: "key" }, h("i", { class: className, "aria-hidden": "true" }), text);
}

export function storage({ storage }: Page): HTMLElement | null {
  if (storage.length === 0) return null;
  const names = ["Folder", "File system", "In a row", "At random", "Cold", "Needed"];
  const cell = (value: number | null, limit: number | null = null) =>
    h(
      "td",
      { class: limit !== null && value !== null && value < limit ? "number short" : "number" },
      value === null ? "\u2013" : number(value),
    );
  const rows = storage.map((entry) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("code", {}, entry.path)),
      h("td", {}, entry.filesystem),
      cell(entry.sequential_mb_s, entry.needed_mb_s),
      cell(entry.random_mb_s, entry.needed_mb_s),
      cell(entry.cold_mb_s, entry.needed_mb_s),
      cell(entry.needed_mb_s),
    ),
  );
  const table = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...rows),
  );
  return section(
    "storage",
    "Storage",
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Storage table" }, table),
    h(
      "p",
      { class: "note" },
      "MB/s. \u201cNeeded\u201d is what the loop reads when data is always ready; a bold value is below it.",
    ),
  );
}

export function healthy({ report }: Page): HTMLElement | null {
  if (report.healthy.length === 0) return null;
  const items = report.healthy.map(({ rule, title }) => h("li", {}, title, " ", h("code", {}, rule)));
  return section("healthy", "Healthy", h("ul", { class: "healthy" }, ...items));
}

export function footer({ report, clock }: Page): HTMLElement {
  const lists = [facts("Machine", report.machine), facts("What watching cost", report.overhead)];
  return h(
    "footer",
    {},
    h("div", { class: "columns" }, ...lists),
    h(
      "p",
      { class: "note" },
      `${report.schema}. Times by the clock of the ${clock}. This page loads nothing and sends nothing.`,
    ),
  );
}

function facts(title: string, values: Record<string, unknown>): HTMLElement {
  const entries = Object.entries(values).flatMap(([name, value]) => [
    h("dt", {}, name.replaceAll("_", " ")),
    h("dd", {}, plain(value)),
  ]);
  return h("div", {}, h("h2", {}, title), h("dl", { class: "list" }, ...entries));
}

function plain(value: unknown): string {
  if (typeof value === "number")
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
  if (Array.isArray(value)) return value.map(plain).join(", ");
  if (value && typeof value === "object") {
    return Object.entries(value)
      .map(([name, inner]) => `${name} ${plain(inner)}`)
      .join(", ");
  }
  return value === null || value === undefined ? "not known" : String(value);
}
