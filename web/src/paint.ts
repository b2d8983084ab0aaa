// Draws lanes on a canvas.

import { scaleLinear } from "d3-scale";
import { number } from "./format";
import { shade } from "./kinds";
import { colour } from "./theme";
import type { Lane, Span } from "./types";

export interface Group {
  title: string | null;
  lanes: Lane[];
  steps: [number, number][];
}

export interface Row {
  lane: Lane;
  name: string;
  top: number;
  height: number;
}

export interface Layout {
  rows: Row[];
  titles: { text: string; top: number }[];
  bands: { steps: [number, number][]; top: number; bottom: number }[];
  height: number;
  gutter: number;
}

export type View = [from: number, to: number];

const AXIS = 24,
  GAP = 3,
  TITLE = 26;
const MANY = 18; // workers whose lanes are thin
const HEIGHTS = { loop: 28, device: 22, copy: 14, worker: 16 };
const ORDER = { loop: 0, device: 1, copy: 2, worker: 3 };

export function layOut(groups: Group[], width: number): Layout {
  const layout: Layout = { rows: [], titles: [], bands: [], height: 0, gutter: width < 560 ? 62 : 84 };
  let top = AXIS;
  for (const { title, lanes, steps } of groups) {
    if (title !== null) {
      layout.titles.push({ text: title, top });
      top += TITLE;
    }
    const begin = top;
    const workers = lanes.filter(({ kind }) => kind === "worker");
    for (const lane of [...lanes].sort((a, b) => ORDER[a.kind] - ORDER[b.kind])) {
      const thin = workers.length > MANY && lane.kind === "worker";
      const height = thin ? 6 : HEIGHTS[lane.kind];
      const name = !thin ? lane.name : lane === workers[0] ? `${workers.length} workers` : "";
      layout.rows.push({ lane, name, top, height });
      top += height + (thin ? 1 : GAP);
    }
    layout.bands.push({ steps, top: begin, bottom: top });
    top += 6;
  }
  layout.height = top;
  return layout;
}

export function xScale(view: View, layout: Layout, width: number) {
  return scaleLinear(view, [layout.gutter, width]);
}

// Of every span, the latest end up to it: unlike the ends of nested spans, these are in order.
const latestEnds = new WeakMap<Span[], Float64Array>();

/** The first span that ends after `time`. Spans are in the order of their starts, and may nest. */
export function firstAt(spans: Span[], time: number): number {
  let ends = latestEnds.get(spans);
  if (!ends) {
    ends = new Float64Array(spans.length);
    spans.forEach((span, index) => (ends![index] = Math.max(span[2], index ? ends![index - 1]! : -Infinity)));
    latestEnds.set(spans, ends);
  }
  let low = 0,
    high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function paint(canvas: HTMLCanvasElement, layout: Layout, view: View, chosen: Span | null): void {
  const width = canvas.clientWidth;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(layout.height * ratio);
  const pen = canvas.getContext("2d");
  if (!pen || width === 0) return;
  pen.scale(ratio, ratio);
  pen.font = `11px ${getComputedStyle(canvas).fontFamily}`;
  pen.textBaseline = "middle";
  paintAxis(pen, layout, view, width);
  for (const { text, top } of layout.titles) {
    pen.fillStyle = colour("muted");
    pen.textAlign = "left";
    pen.fillText(text, 0, top + TITLE / 2 + 2);
  }
  for (const row of layout.rows) paintRow(pen, row, layout, view, width, chosen);
  paintSteps(pen, layout, view, width);
}

function paintAxis(pen: CanvasRenderingContext2D, layout: Layout, view: View, width: number): void {
  const x = xScale(view, layout, width);
  pen.textAlign = "center";
  for (const tick of x.ticks(Math.max(2, Math.floor((width - layout.gutter) / 90)))) {
    pen.fillStyle = colour("muted");
    const text = Math.abs(view[1]) >= 10_000 ? `${+(tick / 1000).toFixed(3)} s` : `${tick} ms`;
    if (x(tick) > layout.gutter + 18 && x(tick) < width - 18) pen.fillText(text, x(tick), AXIS / 2 - 2);
    pen.fillStyle = colour("line");
    pen.fillRect(x(tick), AXIS - 6, 1, 4);
  }
}

function paintSteps(pen: CanvasRenderingContext2D, layout: Layout, view: View, width: number): void {
  const x = xScale(view, layout, width);
  pen.fillStyle = colour("ink");
  pen.globalAlpha = 0.25;
  for (const { steps, top, bottom } of layout.bands) {
    const shown = steps.filter(([start]) => start >= view[0] && start <= view[1]);
    if (shown.length > (width - layout.gutter) / 12) continue;
    for (const [start] of shown) pen.fillRect(Math.round(x(start)), top - 4, 1, bottom - top + 2);
  }
  pen.globalAlpha = 1;
}

function paintRow(
  pen: CanvasRenderingContext2D,
  row: Row,
  layout: Layout,
  view: View,
  width: number,
  chosen: Span | null,
): void {
  const { lane, top, height } = row;
  const x = xScale(view, layout, width);
  pen.textAlign = "left";
  pen.fillStyle = colour(lane.kind === "loop" || lane.kind === "device" ? "ink" : "muted");
  pen.fillText(row.name, 0, top + Math.max(height, 12) / 2, layout.gutter - 8);
  pen.fillStyle = colour("track");
  pen.fillRect(layout.gutter, top, width - layout.gutter, height);
  for (let index = firstAt(lane.spans, view[0]); index < lane.spans.length; index++) {
    const span = lane.spans[index]!;
    if (span[1] > view[1]) break;
    if (span[2] < view[0]) continue;
    const left = Math.max(layout.gutter, x(span[1]));
    const right = Math.min(width, x(span[2]));
    // A seam between neighbours, where there is room for it.
    const wide = Math.max(0.6, right - left - (right - left > 4 ? 1 : 0));
    const name = shade(span[0], lane.kind);
    pen.fillStyle = colour(`kind-${name}`);
    pen.fillRect(left, top, wide, height);
    const text =
      name === "stall" ? `${span[0] === "next" ? "waits" : span[0]} ${number(span[2] - span[1])}` : span[0];
    if (height > 10 && wide > 14 + 6.2 * text.length) {
      pen.fillStyle = colour(name === "stall" ? "on-red" : `on-${name}`) || colour("ink");
      pen.fillText(text, left + 6, top + height / 2 + 0.5, wide - 8);
    }
    if (span === chosen) {
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, top + 1, Math.max(2, wide - 2), height - 2);
    }
  }
}
