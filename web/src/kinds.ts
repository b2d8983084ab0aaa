// What a span or a part is, and which colour says so. Red is for a loop that waits, nothing else.

import type { Lane } from "./types";

const STALLS = new Set(["next", "start", "wait", "fetch", "collate"]);
const SHADES: Record<string, string> = {
  forward: "compute",
  compute: "compute",
  backward: "backward",
  optimizer: "optimizer",
  "zero-grad": "optimizer",
  clip: "optimizer",
  fetch: "fetch",
  collate: "collate",
  copy: "copy",
  "hand-over": "copy",
  sync: "sync",
  launch: "launch",
  next: "waiting",
};

export const LEGEND: [shade: string, text: string][] = [
  ["stall", "loop waits for data"],
  ["compute", "forward, compute"],
  ["backward", "backward"],
  ["optimizer", "optimizer"],
  ["copy", "copy, hand-over"],
  ["launch", "launch"],
  ["sync", "waits for device"],
  ["fetch", "worker makes a batch"],
  ["other", "other"],
];

/** The name of the colour of a span: `--kind-NAME` in the style sheet. */
export function shade(kind: string, lane: Lane["kind"]): string {
  if (lane === "loop" && STALLS.has(kind)) return "stall";
  return SHADES[kind] ?? "other";
}

export function isStall(kind: string, lane: Lane["kind"]): boolean {
  return shade(kind, lane) === "stall";
}

/** The same for a part of the step, whose name is in words. */
export function partShade(name: string): string {
  if (name === "unattributed") return "unattributed";
  if (/wait/i.test(name) && /device|gpu/i.test(name)) return "sync";
  if (/wait|data|next|load|fetch|stall/i.test(name)) return "stall";
  const kind = Object.keys(SHADES).find((kind) => name.toLowerCase().includes(kind));
  return kind ? SHADES[kind]! : "other";
}
