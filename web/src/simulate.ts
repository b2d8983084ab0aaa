// The twin of src/slipstream/doctor/simulate.py: a training loop with torch's DataLoader, replayed.

import type { Pipeline } from "./pipeline";
import { Clock, Shared, type Process } from "./sharing";
import type { Lane, Span } from "./types";

export type Limit = "loop" | "workers" | "prefetch" | "cores" | "storage" | "copy";

export interface Outcome {
  step_ms: number;
  samples_per_s: number;
  wait_ms: number;
  idle_ms: number;
  worker_busy: number;
  cores_busy: number;
  storage_busy: number;
  limit: Limit;
  lanes: Lane[];
}

const STEPS = 200;
const DRAWN_STEPS = 64;
const SLICES = 4;
const READY_BATCHES = 2;
const FELT = 0.05;
const FULL = 0.93;

export function simulate(pipeline: Pipeline): Outcome {
  return new Run(pipeline).outcome();
}

function stepsToRun(workers: number, prefetch: number): [number, number] {
  const counted = Math.max(STEPS, 3 * workers);
  const whole = workers ? Math.ceil(counted / workers) * workers : counted;
  return [2 * workers * prefetch + 5, whole];
}

class Draws {
  private values: number[];
  private at: number;

  constructor(
    values: number[],
    private random: number,
  ) {
    this.values = [...values];
    this.at = values.length;
  }

  next(): number {
    if (this.at === this.values.length) {
      this.shuffle();
      this.at = 0;
    }
    this.at += 1;
    return this.values[this.at - 1]!;
  }

  private shuffle(): void {
    const values = this.values;
    for (let last = values.length - 1; last > 0; last--) {
      this.random = (this.random * 16807) % 2147483647;
      const other = this.random % (last + 1);
      [values[last], values[other]] = [values[other]!, values[last]!];
    }
  }
}

class Run {
  private skip: number;
  private count: number;
  private cpu: Shared;
  private storage: Shared;
  private free = new Shared(Infinity);
  private clock: Clock;
  private fetchTimes: Draws;
  private loopTimes: Draws;
  private queues: [number, number][][];
  private sent = 0;
  private nextWorker = 0;
  private taken = 0;
  private workerOf = new Map<number, number>();
  private asked: number[];
  private arrived = new Set<number>();
  private copied: number[] = [];
  private jobs: [string, number, number][] = [];
  private copiesDone = 0;
  private ends: number[] = [];
  private waits: number[] = [];
  private waited = 0;
  private usedBefore: [number, number] = [0, 0];
  private spans = new Map<string, Span[]>([["loop", []]]);
  private workers: Process[];
  private loop: Process;
  private device: Process;
  private copier: Process;

  constructor(private readonly p: Pipeline) {
    [this.skip, this.count] = stepsToRun(p.workers, p.prefetch);
    this.cpu = new Shared(p.cores);
    this.storage = new Shared(streams(p));
    this.clock = new Clock([this.cpu, this.storage, this.free]);
    this.fetchTimes = new Draws(p.fetch_ms, 1);
    this.loopTimes = new Draws(p.loop_ms, 2);
    this.asked = new Array<number>(p.workers).fill(0);
    this.queues = Array.from({ length: p.workers }, () => []);
    this.workers = this.queues.map((_, number) => this.runWorker(number));
    this.loop = this.runLoop();
    this.device = this.runDevice();
    this.copier = this.runCopier();
  }

  outcome(): Outcome {
    for (const process of [...this.workers, this.loop]) this.clock.start(process);
    if (this.p.device) this.clock.start(this.device);
    if (this.p.copy_ahead) this.clock.start(this.copier);
    for (let task = 0; task < this.p.workers * this.p.prefetch; task++) this.send();
    this.clock.run(this.loop);
    return this.summary();
  }

  private send(): void {
    let worker = 0;
    for (let tries = 0; tries < this.p.workers; tries++) {
      worker = this.nextWorker;
      this.nextWorker = (worker + 1) % this.p.workers;
      if (this.p.in_order || this.asked[worker]! < this.p.prefetch) break;
    }
    this.asked[worker]! += 1;
    this.workerOf.set(this.sent, worker);
    this.queues[worker]!.push([this.sent, this.fetchTimes.next()]);
    this.sent += 1;
    this.clock.wake(this.workers[worker]!);
  }

  private *runWorker(number: number): Process {
    const queue = this.queues[number]!;
    const name = `worker ${number}`;
    this.spans.set(name, []);
    for (;;) {
      while (queue.length === 0) yield null;
      const [batch, ms] = queue.shift()!;
      const began = this.clock.now;
      yield* this.fetch(ms);
      this.mark(name, "fetch", began, `batch ${batch}`);
      this.arrived.add(batch);
      this.clock.wake(this.p.copy_ahead ? this.copier : this.loop);
    }
  }

  private *fetch(ms: number): Process {
    const cpuMs = ms * this.p.fetch_cpu_share;
    const blockedMs = ms - cpuMs;
    const slices = cpuMs > 0 && blockedMs > 0 ? SLICES : 1;
    for (let slice = 0; slice < slices; slice++) {
      if (blockedMs > 0) yield [this.storage, blockedMs / slices, 1];
      if (cpuMs > 0) yield [this.cpu, cpuMs / slices, 1];
    }
  }

  private *take(lane: string): Process {
    let began = this.clock.now;
    if (this.p.workers === 0) {
      yield* this.fetch(this.fetchTimes.next());
      this.mark(lane, "next", began, `batch ${this.taken}`);
      this.waited = this.clock.now - began;
    } else {
      while (this.arrived.size === 0 || (this.p.in_order && !this.arrived.has(this.taken))) yield null;
      const batch = this.p.in_order ? this.taken : this.arrived.values().next().value!;
      this.arrived.delete(batch);
      this.mark(lane, "next", began, `batch ${batch}`);
      this.waited = this.clock.now - began;
      if (this.p.hand_over_ms > 0) {
        began = this.clock.now;
        yield [this.cpu, this.p.hand_over_ms, 1];
        this.mark(lane, "hand-over", began, `batch ${batch}`);
      }
      this.asked[this.workerOf.get(batch)!]! -= 1;
      this.workerOf.delete(batch);
      this.send();
    }
    this.taken += 1;
  }

  private *runLoop(): Process {
    for (let step = 0; step < this.skip + this.count; step++) {
      const began = this.clock.now;
      if (this.p.copy_ahead) {
        while (this.copied.length === 0) yield null;
        this.copied.shift();
        this.clock.wake(this.copier);
        this.mark("loop", "next", began, `batch ${step}`);
        this.waits.push(this.clock.now - began);
      } else {
        yield* this.take("loop");
        this.waits.push(this.waited);
      }
      yield* this.p.device ? this.stepOnDevice(step) : this.stepHere(step);
    }
  }

  private *stepHere(step: number): Process {
    let began = this.clock.now;
    if (this.p.copy_ms > 0 && !this.p.copy_ahead) {
      yield [this.free, this.p.copy_ms, 0];
      this.mark("loop", "copy", began, `batch ${step}`);
      began = this.clock.now;
    }
    yield [this.cpu, this.loopTimes.next(), this.p.loop_cores];
    this.mark("loop", "compute", began, `step ${step}`);
    this.endStep();
  }

  private *stepOnDevice(step: number): Process {
    let began = this.clock.now;
    if (this.p.copy_ms > 0 && !this.p.copy_ahead) {
      this.enqueue("copy", step, this.p.copy_ms);
      while (!this.p.pinned && this.copiesDone <= step) yield null;
      this.mark("loop", "copy", began, `batch ${step}`);
      began = this.clock.now;
    }
    if (this.p.launch_ms > 0) {
      yield [this.cpu, this.p.launch_ms, this.p.loop_cores];
      this.mark("loop", "launch", began, `step ${step}`);
      began = this.clock.now;
    }
    this.enqueue("compute", step, this.loopTimes.next());
    const last = step + 1 === this.skip + this.count;
    while (this.ends.length < step + 1 - (last ? 0 : this.p.run_ahead)) yield null;
    this.mark("loop", "sync", began, `step ${step}`);
  }

  private enqueue(kind: string, step: number, ms: number): void {
    this.jobs.push([kind, step, ms]);
    this.clock.wake(this.device);
  }

  private *runDevice(): Process {
    this.spans.set("device", []);
    for (;;) {
      while (this.jobs.length === 0) yield null;
      const [kind, step, ms] = this.jobs.shift()!;
      const began = this.clock.now;
      yield [this.free, ms, 0];
      this.mark("device", kind, began, `step ${step}`);
      if (kind === "copy") this.copiesDone += 1;
      else this.endStep();
      this.clock.wake(this.loop);
    }
  }

  private *runCopier(): Process {
    this.spans.set("copy", []);
    for (;;) {
      while (this.copied.length >= READY_BATCHES) yield null;
      const batch = this.taken;
      yield* this.take("copy");
      const began = this.clock.now;
      if (this.p.copy_ms > 0) {
        yield [this.free, this.p.copy_ms, 0];
        this.mark("copy", "copy", began, `batch ${batch}`);
      }
      this.copied.push(batch);
      this.clock.wake(this.loop);
    }
  }

  private mark(lane: string, kind: string, began: number, what: string): void {
    if (this.clock.now <= began || this.ends.length < this.skip) return;
    this.spans.get(lane)!.push([kind, began, this.clock.now, what]);
  }

  private endStep(): void {
    this.ends.push(this.clock.now);
    if (this.ends.length === this.skip) this.usedBefore = [this.cpu.used, this.storage.used];
  }

  private summary(): Outcome {
    const { p, ends, skip, count } = this;
    const begin = ends[skip - 1]!;
    const end = ends[ends.length - 1]!;
    const passed = Math.max(end - begin, 1e-9);
    const stepMs = passed / count;
    const waitMs = sum(this.waits.slice(skip)) / count;
    const idleMs = p.device ? stepMs - inside(this.spans.get("device")!, begin, end) / count : waitMs;
    const busy = sum(this.workers.map((_, n) => inside(this.spans.get(`worker ${n}`)!, begin, end)));
    const workerBusy = p.workers ? busy / (passed * p.workers) : 0;
    const coresBusy = (this.cpu.used - this.usedBefore[0]) / (passed * p.cores);
    const storageBusy = (this.storage.used - this.usedBefore[1]) / (passed * this.storage.capacity);
    const drawn = ends[Math.min(skip + DRAWN_STEPS, ends.length) - 1]!;
    return {
      step_ms: stepMs,
      samples_per_s: (p.batch_size * 1000) / stepMs,
      wait_ms: waitMs,
      idle_ms: idleMs,
      worker_busy: workerBusy,
      cores_busy: coresBusy,
      storage_busy: storageBusy,
      limit: limit(p, stepMs, Math.min(waitMs, idleMs), workerBusy, coresBusy, storageBusy),
      lanes: [...this.spans].map(([name, spans]) => cut(name, spans, begin, drawn)),
    };
  }
}

function streams(p: Pipeline): number {
  if (p.storage_ms <= 0) return Infinity;
  const mean = sum(p.fetch_ms) / p.fetch_ms.length;
  return Math.max(1, (mean * (1 - p.fetch_cpu_share)) / p.storage_ms);
}

function limit(
  p: Pipeline,
  stepMs: number,
  starvedMs: number,
  workerBusy: number,
  coresBusy: number,
  storageBusy: number,
): Limit {
  if (starvedMs < FELT * stepMs) {
    let aloneMs = sum(p.loop_ms) / p.loop_ms.length;
    aloneMs += p.copy_ahead ? 0 : p.copy_ms + p.hand_over_ms;
    return coresBusy > FULL && stepMs > (1 + FELT) * aloneMs ? "cores" : "loop";
  }
  if (p.copy_ahead && p.copy_ms > FULL * stepMs) return "copy";
  if (storageBusy > FULL) return "storage";
  if (coresBusy > FULL) return "cores";
  return p.workers === 0 || workerBusy > FULL ? "workers" : "prefetch";
}

function sum(values: number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function inside(spans: Span[], begin: number, end: number): number {
  return sum(spans.map((span) => Math.max(0, Math.min(span[2], end) - Math.max(span[1], begin))));
}

function cut(name: string, spans: Span[], begin: number, end: number): Lane {
  const kind = name === "loop" || name === "copy" || name === "device" ? name : "worker";
  const kept = spans
    .filter(([, start, stop]) => stop > begin && start < end)
    .map(([what, start, stop, label]): Span => [what, Math.max(0, start - begin), stop - begin, label]);
  return { name, kind, spans: kept };
}
