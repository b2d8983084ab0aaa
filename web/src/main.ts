// Puts the page together from the data inside it.

import { footer, healthy, ladder, memory, storage } from "./charts";
import { h, section } from "./dom";
import { findings } from "./findings";
import { header, waterfall } from "./summary";
import { Timeline } from "./timeline";
import * as twin from "./twin";
import type { Page } from "./types";
import { whatIf } from "./whatif";

function timeline(page: Page): HTMLElement | null {
  if (page.lanes.length === 0) return null;
  // Outer before inner: the inner one is painted over it.
  for (const { spans } of page.lanes) spans.sort((a, b) => a[1] - b[1] || b[2] - a[2]);
  const middle = Math.floor(page.steps.length / 2);
  const from = page.steps[Math.max(0, middle - 6)]?.[0] ?? 0;
  const to = page.steps[Math.min(page.steps.length - 1, middle + 6)]?.[1] ?? Infinity;
  const group = { title: null, lanes: page.lanes, steps: page.steps };
  return section("timeline", "Timeline", new Timeline("Timeline of the run", [group], [from, to]).element);
}

function navigation(sections: HTMLElement[]): HTMLElement {
  const links = sections.map((part) =>
    h("a", { href: `#${part.id}` }, part.querySelector("h2")?.textContent ?? part.id),
  );
  return h("nav", { "aria-label": "Parts of the report" }, ...links);
}

function show(page: Page, into: HTMLElement): void {
  const sections = [waterfall, findings, timeline, ladder, memory, storage, healthy, whatIf]
    .map((make) => make(page))
    .filter((made) => made !== null);
  into.append(header(page), navigation(sections), ...sections, footer(page));
}

if (typeof document === "undefined") {
  // Not a browser: the tests hold the simulation of this very bundle against Python's.
  Object.assign(globalThis, { twin });
} else {
  const data = document.getElementById("data")!.textContent!;
  show(JSON.parse(data) as Page, document.getElementById("page")!);
}
