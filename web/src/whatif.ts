// The what-if panel: settings of the loader, the simulated step, and its lanes under the measured.

import { search } from "./best";
import { slider, toggle } from "./controls";
import { bar, button, h, section } from "./dom";
import { milliseconds, number, percent, times } from "./format";
import type { Group } from "./paint";
import { withBatchSize, withDecodeSpeed, withPinned, type Pipeline } from "./pipeline";
import { simulate, type Limit, type Outcome } from "./simulate";
import { Timeline } from "./timeline";
import type { Page } from "./types";

const BATCHES = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4];
const SPEEDS = [1, 1.5, 2, 3, 4, 6, 8, 10, 15, 20];
const SHOWN_STEPS = 8;
const DOUBTFUL = 0.15;
const TURN_MS = 20; // of a search, between which the page stays alive

const LIMITS: Record<Limit, string> = {
  loop: "The loop itself: data is always ready.",
  workers: "Workers: all are busy, all the time. More of them would help.",
  prefetch: "Prefetch: the loop waits while workers are idle. A deeper one evens slow batches out.",
  cores: "Cores: all are busy. Only less work per sample would help.",
  storage: "Storage: it gives no more, however many ask.",
  copy: "Copies to the device: they take longer than the steps that hide them.",
};

export function whatIf(page: Page): HTMLElement | null {
  return page.pipeline ? new Panel(page, page.pipeline).element : null;
}

function upTo(last: number, first = 0): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

class Panel {
  readonly element: HTMLElement;
  private most: number;
  private controls;
  private step = h("strong", { id: "predicted-step" });
  private rate = h("span", { id: "predicted-rate" });
  private gain = h("span", { id: "predicted-gain" });
  private limit = h("p", { id: "predicted-limit" });
  private bars = h("table", { class: "bars" });
  private use = h("p", { class: "note" });
  private took = h("span", { class: "note", id: "took" });
  private find = button("Best setting", "Search workers and prefetch for the shortest step", () =>
    this.search(),
  );
  private baseline: Outcome;
  private measured: Group;
  private timeline: Timeline;
  private queued = false;

  constructor(
    private page: Page,
    private base: Pipeline,
  ) {
    const later = () => this.later();
    this.most = Math.max(2 * Math.ceil(base.cores), base.workers);
    this.controls = {
      workers: slider("workers", "Workers", upTo(this.most), String, later),
      prefetch: slider(
        "prefetch",
        "Prefetch, batches per worker",
        upTo(Math.max(8, base.prefetch), 1),
        String,
        later,
      ),
      batch: slider(
        "batch",
        "Batch size",
        BATCHES,
        (scale) => `${this.batchSize(scale)} (\u00d7${scale})`,
        later,
      ),
      decode: slider("decode", "Decode speed", SPEEDS, (speed) => `\u00d7${speed}`, later),
      pinned: toggle("pinned", "Pinned memory", base.copy_ms > 0, later),
      ahead: toggle("ahead", "GPU prefetch", base.copy_ms > 0, later),
      order: toggle("order", "Batches in order", true, later),
    };
    this.baseline = simulate(base);
    this.measured = window(page);
    const span = SHOWN_STEPS * page.measured_step_ms;
    this.timeline = new Timeline("Measured and simulated lanes", [this.measured], [0, span]);
    this.element = this.build();
    this.reset();
  }

  private batchSize(scale: number): number {
    return Math.max(1, Math.round(this.base.batch_size * scale));
  }

  private build(): HTMLElement {
    const { pinned, ahead, order, ...sliders } = this.controls;
    const inputs = h(
      "form",
      { class: "controls", "aria-label": "Settings", submit: (event) => event.preventDefault() },
      ...Object.values(sliders).map(({ element }) => element),
      h("div", { class: "switches" }, pinned.element, ahead.element, order.element),
      h(
        "div",
        { class: "buttons" },
        this.find,
        button("As measured", "Back to the measured setting", () => this.reset()),
      ),
    );
    const prediction = h(
      "div",
      { class: "prediction", role: "status", "aria-live": "polite" },
      h("p", { class: "big" }, this.step, " ", this.gain),
      h("p", {}, this.rate),
      h("h3", {}, "What limits"),
      this.limit,
      this.use,
    );
    return section(
      "what-if",
      "What if",
      h(
        "p",
        { class: "note" },
        "The measured times of batches and steps, replayed through a model of the loader with other settings.",
      ),
      h("div", { class: "panel" }, inputs, h("div", {}, prediction, this.bars, h("p", {}, this.took))),
      this.timeline.element,
    );
  }

  private reset(): void {
    const { workers, prefetch, batch, decode, pinned, ahead, order } = this.controls;
    workers.set(this.base.workers);
    prefetch.set(this.base.prefetch);
    batch.set(1);
    decode.set(1);
    pinned.set(this.base.pinned);
    ahead.set(this.base.copy_ahead);
    order.set(this.base.in_order);
    this.update();
  }

  private chosen(): Pipeline {
    const { workers, prefetch, batch, decode, pinned, ahead, order } = this.controls;
    const scaled = batch.value() === 1 ? this.base : withBatchSize(this.base, this.batchSize(batch.value()));
    return {
      ...withPinned(withDecodeSpeed(scaled, decode.value()), pinned.value()),
      workers: workers.value(),
      prefetch: prefetch.value(),
      copy_ahead: ahead.value(),
      in_order: order.value(),
    };
  }

  private later(): void {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.update();
    });
  }

  private update(): void {
    const chosen = this.chosen();
    const began = performance.now();
    const outcome = simulate(chosen);
    const ms = performance.now() - began;
    const measuredRate = (this.base.batch_size * 1000) / this.page.measured_step_ms;
    const ratio = outcome.samples_per_s / measuredRate;
    this.step.textContent = milliseconds(outcome.step_ms);
    this.gain.textContent = `a step, ${times(ratio)} the measured speed`;
    this.rate.textContent = `${number(outcome.samples_per_s)} samples/s; measured ${number(measuredRate)}`;
    this.limit.textContent =
      chosen.workers === 0 && outcome.limit === "workers"
        ? "No workers: the loop makes its batches itself."
        : LIMITS[outcome.limit];
    this.use.textContent = `Workers busy ${percent(outcome.worker_busy)}, cores ${percent(outcome.cores_busy)}; the loop waits for data ${percent(outcome.wait_ms / outcome.step_ms)} of a step.`;
    this.bars.replaceChildren(h("tbody", {}, ...this.comparison(outcome)));
    this.took.textContent = `${this.accuracy()} Simulated in ${number(ms)} ms.`;
    const simulated = { title: "Simulated", lanes: outcome.lanes, steps: [] };
    this.timeline.setGroups(this.measured.lanes.length ? [this.measured, simulated] : [simulated]);
  }

  private accuracy(): string {
    const off = this.baseline.step_ms / this.page.measured_step_ms - 1;
    const warning = Math.abs(off) > DOUBTFUL ? " Take predictions as rough." : "";
    return `For the measured setting the model is ${percent(Math.abs(off))} off.${warning}`;
  }

  private comparison(outcome: Outcome): HTMLElement[] {
    const rows: [string, number, string][] = [
      ["measured", this.page.measured_step_ms, "other"],
      ["modelled", this.baseline.step_ms, "faint"],
      ["predicted", outcome.step_ms, "accent"],
    ];
    const most = Math.max(...rows.map(([, ms]) => ms));
    return rows.map(([name, ms, shade]) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, name),
        h("td", { class: "track" }, bar(0, ms / most, shade)),
        h("td", { class: "number" }, milliseconds(ms)),
      ),
    );
  }

  private search(): void {
    const turns = search(this.chosen(), this.most);
    this.find.disabled = true;
    this.find.textContent = "Searching";
    const turn = () => {
      const until = performance.now() + TURN_MS;
      while (performance.now() < until) {
        const { done, value } = turns.next();
        if (!done) continue;
        this.controls.workers.set(value.workers);
        this.controls.prefetch.set(value.prefetch);
        this.find.disabled = false;
        this.find.textContent = "Best setting";
        this.update();
        return;
      }
      setTimeout(turn, 0);
    };
    turn();
  }
}

/** Some measured steps from the middle of the run, from time 0 on. */
function window(page: Page): Group {
  const first = Math.max(0, Math.floor(page.steps.length / 2) - SHOWN_STEPS);
  const shown = page.steps.slice(first, first + 2 * SHOWN_STEPS);
  const begin = shown[0]?.[0] ?? 0;
  const end = shown[shown.length - 1]?.[1] ?? Infinity;
  const lanes = page.lanes.map((lane) => ({
    ...lane,
    spans: lane.spans
      .filter((span) => span[2] > begin && span[1] < end)
      .map(([kind, start, stop, label]): [string, number, number, string] => [
        kind,
        Math.max(0, start - begin),
        Math.min(end, stop) - begin,
        label,
      ]),
  }));
  return { title: "Measured", lanes, steps: shown.map(([start, stop]) => [start - begin, stop - begin]) };
}
