// The twin of src/slipstream/doctor/sharing.py: tasks that share resources, processes that wait.

// What a process does next: a resource, how long alone, how much of it. null: sleep until woken.
export type Task = [Shared, number, number] | null;
export type Process = Generator<Task, void, void>;

interface Entry {
  end: number;
  count: number;
  demand: number;
  process: Process;
}

const before = (a: Entry, b: Entry) => a.end < b.end || (a.end === b.end && a.count < b.count);

class Heap {
  private entries: Entry[] = [];

  first(): Entry | undefined {
    return this.entries[0];
  }

  push(entry: Entry): void {
    const entries = this.entries;
    let at = entries.length;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(entry, entries[parent]!)) break;
      entries[at] = entries[parent]!;
      at = parent;
    }
    entries[at] = entry;
  }

  pop(): Entry {
    const entries = this.entries;
    const top = entries[0]!;
    const last = entries.pop()!;
    if (entries.length === 0) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= entries.length) break;
      if (child + 1 < entries.length && before(entries[child + 1]!, entries[child]!)) child += 1;
      if (!before(entries[child]!, last)) break;
      entries[at] = entries[child]!;
      at = child;
    }
    entries[at] = last;
    return top;
  }
}

export class Shared {
  demand = 0;
  used = 0;
  private done = 0;
  private tasks = new Heap();
  private count = 0;

  constructor(readonly capacity: number) {}

  add(process: Process, work: number, demand: number): void {
    this.count += 1;
    this.tasks.push({ end: this.done + work, count: this.count, demand, process });
    this.demand += demand;
  }

  leftMs(): number {
    const first = this.tasks.first();
    return first ? Math.max(0, first.end - this.done) / this.rate() : Infinity;
  }

  passMs(ms: number): void {
    this.done += ms * this.rate();
    this.used += ms * Math.min(this.demand, this.capacity);
  }

  pop(): Process {
    const { end, demand, process } = this.tasks.pop();
    this.done = Math.max(this.done, end);
    this.demand = this.tasks.first() ? this.demand - demand : 0;
    return process;
  }

  private rate(): number {
    return this.demand > this.capacity ? this.capacity / this.demand : 1;
  }
}

export class Clock {
  now = 0;
  private ready: Process[] = [];
  private asleep = new Set<Process>();

  constructor(private readonly resources: Shared[]) {}

  start(process: Process): void {
    this.ready.push(process);
  }

  wake(process: Process): void {
    if (this.asleep.delete(process)) this.ready.push(process);
  }

  run(last: Process): void {
    for (;;) {
      for (let process = this.ready.shift(); process; process = this.ready.shift()) {
        const { done, value } = process.next();
        if (done) {
          if (process === last) return;
        } else if (value) {
          value[0].add(process, value[1], value[2]);
        } else {
          this.asleep.add(process);
        }
      }
      this.passToNextEvent();
    }
  }

  private passToNextEvent(): void {
    let nearest = this.resources[0]!;
    let left = nearest.leftMs();
    for (const resource of this.resources) {
      const ms = resource.leftMs();
      if (ms < left) [nearest, left] = [resource, ms];
    }
    if (left === Infinity) throw new Error("all processes of the simulation sleep");
    this.now += left;
    for (const resource of this.resources) resource.passMs(left);
    this.ready.push(nearest.pop());
  }
}
