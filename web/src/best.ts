// The twin of src/slipstream/doctor/best.py: the setting that the simulation likes best.

import type { Pipeline } from "./pipeline";
import { simulate } from "./simulate";

const PREFETCH = [1, 2, 4, 8];
const AS_GOOD = 1.01;

export interface Setting {
  workers: number;
  prefetch: number;
}

export function* settings(mostWorkers: number): Generator<Setting> {
  yield { workers: 0, prefetch: PREFETCH[1]! };
  for (let workers = 1; workers <= mostWorkers; workers += Math.max(1, Math.floor(workers / 8))) {
    for (const prefetch of PREFETCH) yield { workers, prefetch };
  }
}

/** Tries one setting per turn; its value at the end is the best of them. */
export function* search(pipeline: Pipeline, mostWorkers: number): Generator<Setting, Setting> {
  const tried: [Setting, number][] = [];
  for (const setting of settings(mostWorkers)) {
    tried.push([setting, simulate({ ...pipeline, ...setting }).step_ms]);
    yield setting;
  }
  const enough = AS_GOOD * Math.min(...tried.map(([, ms]) => ms));
  const good = tried.filter(([, ms]) => ms <= enough).map(([setting]) => setting);
  return good.reduce((a, b) =>
    b.workers < a.workers || (b.workers === a.workers && b.prefetch < a.prefetch) ? b : a,
  );
}
