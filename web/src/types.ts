// What the page shows. The twin of src/slipstream/doctor/view.py.

import type { Pipeline } from "./pipeline";

export type Span = [kind: string, start: number, end: number, label: string];

export interface Gain {
  low_ms: number;
  high_ms: number;
  how: "measured" | "bounded" | "simulated";
}

export interface Finding {
  rule: string;
  title: string;
  where: string | null;
  cost_ms: number;
  share: number;
  gain: Gain | null;
  fix: string;
  class: "E" | "N" | "S";
  next: string | null;
  places: string[];
}

export interface Report {
  schema: string;
  verdict: string;
  notes: string[];
  step_ms: number;
  ceiling_ms: number | null;
  parts: Record<string, number>;
  findings: Finding[];
  healthy: { rule: string; title: string }[];
  overhead: Record<string, unknown>;
  machine: Record<string, unknown>;
}

export interface Lane {
  name: string;
  kind: "loop" | "worker" | "copy" | "device";
  spans: Span[];
}

export interface Excerpt {
  where: string;
  lines: [number, string][];
}

export interface Rung {
  name: string;
  ms: number;
  low: number;
  high: number;
}

export interface Storage {
  path: string;
  filesystem: string;
  sequential_mb_s: number | null;
  random_mb_s: number | null;
  cold_mb_s: number | null;
  needed_mb_s: number | null;
}

export interface Page {
  report: Report;
  script: string;
  began_at: string;
  clock: "host" | "device";
  lanes: Lane[];
  steps: [number, number][];
  excerpts: Excerpt[];
  ladder: Rung[];
  memory: [number, number, number | null][];
  storage: Storage[];
  pipeline: Pipeline | null;
  measured_step_ms: number;
}
