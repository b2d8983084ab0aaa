// What was found, the most expensive first.

import { bar, h, section } from "./dom";
import { milliseconds, percent, range } from "./format";
import type { Excerpt, Finding, Page } from "./types";

const CLASSES = {
  E: ["exact", "Results stay the same, bit for bit."],
  N: ["numeric", "The same maths, with other rounding or random numbers."],
  S: ["semantic", "What is computed changes: only ever suggested."],
} as const;
const SAME_RESULTS = "This command leaves results as they are, bit for bit.";

export function findings(page: Page): HTMLElement {
  const sorted = [...page.report.findings].sort((a, b) => b.cost_ms - a.cost_ms);
  if (sorted.length === 0) {
    return section("findings", "Findings", h("p", {}, "Nothing that costs a step measurable time."));
  }
  const cards = sorted.map((finding) => card(finding, page.excerpts));
  return section("findings", "Findings", h("ol", { class: "cards" }, ...cards), legend());
}

function card(finding: Finding, excerpts: Excerpt[]): HTMLElement {
  const excerpt = excerpts.find(({ where }) => where === finding.where);
  const cost = h(
    "div",
    { class: "cost" },
    h("strong", {}, milliseconds(finding.cost_ms)),
    h("span", { class: "track" }, bar(0, finding.share, "accent")),
    h("span", { class: "note" }, `${percent(finding.share)} of a step`),
  );
  const body = h(
    "div",
    { class: "body" },
    h("h3", {}, finding.title),
    h("p", { class: "tags" }, h("code", {}, finding.rule), badge(finding.class), gain(finding)),
    finding.where ? place(finding.where, excerpt) : null,
    finding.places.length ? h("p", { class: "note" }, `Also at ${finding.places.join(", ")}`) : null,
    h("p", { class: "fix" }, finding.fix),
    finding.next ? command(finding.next) : null,
    isExactAllTheSame(finding) ? h("p", { class: "note" }, SAME_RESULTS) : null,
  );
  return h("li", { class: "card" }, cost, body);
}

// The advice may be numeric, and the command not: without this flag it keeps all bits.
function isExactAllTheSame({ class: kind, next }: Finding): boolean {
  return kind !== "E" && next !== null && !next.includes("--allow numeric");
}

function badge(letter: Finding["class"]): HTMLElement {
  const [name, meaning] = CLASSES[letter];
  return h(
    "abbr",
    { class: "badge", title: meaning, tabindex: 0, "aria-label": `${name}: ${meaning}` },
    `${letter} ${name}`,
  );
}

function gain({ gain }: Finding): HTMLElement | null {
  if (!gain) return h("span", { class: "note" }, "gain not known");
  return h("span", { class: "gain" }, `saves ${range(gain.low_ms, gain.high_ms)} a step, ${gain.how}`);
}

function place(where: string, excerpt: Excerpt | undefined): HTMLElement {
  const line = Number(where.match(/:(\d+)$/)?.[1] ?? 0);
  const code = (excerpt?.lines ?? []).map(([number, text]) =>
    h(
      "span",
      { class: number === line ? "line here" : "line" },
      h("span", { class: "gutter", "aria-hidden": "true" }, String(number)),
      `${text}\n`,
    ),
  );
  return h(
    "figure",
    {},
    h("figcaption", {}, h("code", {}, where)),
    code.length ? h("pre", { tabindex: 0, "aria-label": `Code at ${where}` }, ...code) : null,
  );
}

function command(text: string): HTMLElement {
  const code = h("code", {}, text);
  const copy = h(
    "button",
    { type: "button", "aria-label": `Copy: ${text}`, click: () => void copyText(text, code, copy) },
    "Copy",
  );
  return h(
    "div",
    { class: "command" },
    h("span", { class: "prompt", "aria-hidden": "true" }, "$"),
    code,
    copy,
  );
}

async function copyText(text: string, code: HTMLElement, pressed: HTMLElement): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = "Copied";
  } catch {
    // Browsers keep the clipboard from pages of file://; what is selected can still be copied.
    getSelection()?.selectAllChildren(code);
    pressed.textContent = document.execCommand("copy") ? "Copied" : "Selected";
  }
  setTimeout(() => (pressed.textContent = "Copy"), 1500);
}

function legend(): HTMLElement {
  const entries = Object.entries(CLASSES).flatMap(([letter, [name, meaning]]) => [
    h("dt", {}, `${letter} ${name}`),
    h("dd", {}, meaning),
  ]);
  return h("dl", { class: "legend classes" }, ...entries);
}
