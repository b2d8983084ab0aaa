// Lanes that can be zoomed and panned, by pointer and by keyboard.

import { button, h } from "./dom";
import { milliseconds, percent } from "./format";
import { isStall, LEGEND, shade } from "./kinds";
import { key } from "./charts";
import { firstAt, layOut, paint, xScale, type Group, type Layout, type Row, type View } from "./paint";
import { onTheme } from "./theme";
import type { Lane, Span } from "./types";

const HINT =
  "Drag or arrow keys pan, + and \u2212 zoom, the wheel zooms after a click, 0 shows all; , and . go from span to span, up and down from lane to lane.";

export class Timeline {
  readonly element: HTMLElement;
  private canvas = h("canvas", { "aria-hidden": "true" });
  private tip = h("div", { class: "tip", hidden: true });
  private said = h("p", { class: "said note", "aria-live": "polite" });
  private legend = h("p", { class: "legend" });
  private box: HTMLElement;
  private layout: Layout = layOut([], 0);
  private chosen: { row: number; span: number } | null = null;
  private whole: View = [0, 1];
  private view: View = [0, 1];

  constructor(
    label: string,
    private groups: Group[],
    private first: View,
  ) {
    const hint = h("p", { class: "note hint" }, HINT);
    this.box = h(
      "div",
      {
        class: "lanes",
        tabindex: 0,
        role: "application",
        "aria-label": label,
        "aria-roledescription": "timeline",
      },
      this.canvas,
      this.tip,
    );
    const buttons = h(
      "div",
      { class: "buttons", role: "group", "aria-label": `${label}: view` },
      button("\u2212", "Zoom out", () => this.zoom(1.6)),
      button("+", "Zoom in", () => this.zoom(1 / 1.6)),
      button("\u2190", "Earlier", () => this.pan(-0.25)),
      button("\u2192", "Later", () => this.pan(0.25)),
      button("All", "Show all", () => this.show(this.whole)),
      button("Longest wait", "Go to the longest wait of the loop", () => this.longestWait()),
    );
    this.element = h("div", { class: "timeline" }, buttons, this.box, this.said, this.legend, hint);
    this.listen();
    this.setGroups(groups);
    this.show(first);
    new ResizeObserver(() => this.draw()).observe(this.box);
    onTheme(() => this.draw());
  }

  /** Show other lanes in the same view. */
  setGroups(groups: Group[]): void {
    this.groups = groups;
    this.chosen = null;
    const lanes = groups.flatMap((group) => group.lanes);
    const end = Math.max(
      1e-3,
      ...lanes.map(({ spans }) => spans.reduce((last, span) => Math.max(last, span[2]), 0)),
    );
    this.whole = [0, Number.isFinite(this.first[1]) ? Math.max(end, this.first[1]) : end];
    const used = new Set(lanes.flatMap((lane) => lane.spans.map((span) => shade(span[0], lane.kind))));
    if (this.view[1] > 0) this.said.textContent = this.waitsInView();
    this.legend.replaceChildren(
      ...LEGEND.filter(([name]) => used.has(name)).map(([name, text]) => key(`kind ${name}`, text)),
    );
    this.draw();
  }

  private show([from, to]: View): void {
    const [begin, end] = this.whole;
    const length = Math.min(Math.max(to - from, (end - begin) / 5000), end - begin);
    const start = Math.min(Math.max(from, begin), end - length);
    this.view = [start, start + length];
    this.draw();
    if (!this.chosen) this.said.textContent = this.waitsInView();
  }

  private zoom(factor: number, around = (this.view[0] + this.view[1]) / 2): void {
    const [from, to] = this.view;
    this.show([around - (around - from) * factor, around + (to - around) * factor]);
  }

  private pan(share: number): void {
    const by = share * (this.view[1] - this.view[0]);
    this.show([this.view[0] + by, this.view[1] + by]);
  }

  private draw(): void {
    const width = this.box.clientWidth;
    if (width === 0) return;
    this.layout = layOut(this.groups, width);
    this.canvas.style.height = `${this.layout.height}px`;
    paint(this.canvas, this.layout, this.view, this.chosenSpan());
  }

  private chosenSpan(): Span | null {
    return this.chosen && (this.layout.rows[this.chosen.row]?.lane.spans[this.chosen.span] ?? null);
  }

  private loopLane(): Lane | undefined {
    return this.groups[0]?.lanes.find(({ kind }) => kind === "loop");
  }

  private waitsInView(): string {
    const shares = this.groups.flatMap(({ title, lanes }) => {
      const loop = lanes.find(({ kind }) => kind === "loop");
      return loop
        ? [
            `${title ? `${title}: the` : "The"} loop waits for data ${percent(waitShare(loop, this.view))} of the time.`,
          ]
        : [];
    });
    return `${milliseconds(this.view[1] - this.view[0])} shown. ${shares.join(" ")}`;
  }

  private longestWait(): void {
    const spans = (this.loopLane()?.spans ?? []).filter(([kind]) => isStall(kind, "loop"));
    if (spans.length === 0) return;
    const longest = spans.reduce((a, b) => (b[2] - b[1] > a[2] - a[1] ? b : a));
    const row = this.layout.rows.findIndex(({ lane }) => lane === this.loopLane());
    const around = 1.5 * (longest[2] - longest[1]);
    this.choose(row, this.layout.rows[row]!.lane.spans.indexOf(longest));
    this.show([longest[1] - around, longest[2] + around]);
  }

  private choose(row: number, span: number): void {
    const lane = this.layout.rows[row]?.lane;
    const found = lane?.spans[span];
    if (!lane || !found) return;
    this.chosen = { row, span };
    this.said.textContent = describe(lane, found);
    const [from, to] = this.view;
    if (found[1] < from || found[2] > to) {
      const middle = (found[1] + found[2]) / 2,
        half = Math.max((to - from) / 2, (found[2] - found[1]) * 0.6);
      this.show([middle - half, middle + half]);
    } else {
      this.draw();
    }
  }

  private chooseNear(row: number, time: number): void {
    const bounded = Math.min(Math.max(row, 0), this.layout.rows.length - 1);
    const spans = this.layout.rows[bounded]?.lane.spans ?? [];
    this.choose(bounded, Math.min(firstAt(spans, time), spans.length - 1));
  }

  private move(rows: number, spans: number): void {
    const at = this.chosenSpan();
    if (!this.chosen || !at) this.chooseNear(0, this.view[0]);
    else if (rows) this.chooseNear(this.chosen.row + rows, (at[1] + at[2]) / 2);
    else this.choose(this.chosen.row, this.chosen.span + spans);
  }

  private listen(): void {
    const keys: Record<string, () => void> = {
      ArrowLeft: () => this.pan(-0.15),
      ArrowRight: () => this.pan(0.15),
      ArrowUp: () => this.move(-1, 0),
      ArrowDown: () => this.move(1, 0),
      "+": () => this.zoom(1 / 1.6),
      "=": () => this.zoom(1 / 1.6),
      "-": () => this.zoom(1.6),
      "0": () => this.show(this.whole),
      ",": () => this.move(0, -1),
      ".": () => this.move(0, 1),
      Escape: () => {
        this.chosen = null;
        this.show(this.view);
      },
    };
    this.box.addEventListener("keydown", (event) => {
      const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    // Only after a click or with Ctrl: a page that is scrolled past must not be caught here.
    this.box.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && document.activeElement !== this.box) return;
        event.preventDefault();
        this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), this.timeAt(event));
      },
      { passive: false },
    );
    this.listenForDrags();
  }

  private listenForDrags(): void {
    let grabbed: { x: number; view: View } | null = null;
    this.box.addEventListener("pointerdown", (event) => {
      grabbed = { x: event.clientX, view: this.view };
      this.box.setPointerCapture(event.pointerId);
    });
    this.box.addEventListener("pointermove", (event) => {
      if (grabbed) {
        const perPixel = (grabbed.view[1] - grabbed.view[0]) / (this.box.clientWidth - this.layout.gutter);
        const by = (grabbed.x - event.clientX) * perPixel;
        this.show([grabbed.view[0] + by, grabbed.view[1] + by]);
      }
      this.hover(event);
    });
    const release = () => (grabbed = null);
    this.box.addEventListener("pointerup", release);
    this.box.addEventListener("pointercancel", release);
    this.box.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  private timeAt(event: MouseEvent): number {
    const x = event.clientX - this.box.getBoundingClientRect().left;
    return xScale(this.view, this.layout, this.box.clientWidth).invert(x);
  }

  private hover(event: PointerEvent): void {
    const box = this.box.getBoundingClientRect();
    const y = event.clientY - box.top;
    const row = this.layout.rows.find(({ top, height }) => y >= top && y < top + height);
    const span = row && spanAt(row, this.timeAt(event));
    this.tip.hidden = !span;
    if (!row || !span) return;
    this.tip.textContent = describe(row.lane, span);
    const left = Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${row.top + row.height + 6}px`;
  }
}

function waitShare(lane: Lane, [from, to]: View): number {
  let waited = 0,
    until = from;
  for (const [kind, start, end] of lane.spans) {
    if (!isStall(kind, "loop")) continue;
    waited += Math.max(0, Math.min(end, to) - Math.max(start, until));
    until = Math.max(until, end);
  }
  return waited / (to - from);
}

function spanAt(row: Row, time: number): Span | undefined {
  // The last that holds the time is the innermost.
  return row.lane.spans.findLast(([, start, end]) => start <= time && time < end);
}

function describe(lane: Lane, [kind, start, end, label]: Span): string {
  const what = isStall(kind, lane.kind) ? `${kind}, waits for data` : kind;
  return `${lane.name}: ${what}${label ? `, ${label}` : ""}: ${milliseconds(end - start)}, from ${milliseconds(start)}`;
}
