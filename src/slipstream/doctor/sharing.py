"""Time in the simulation: tasks that share processors, and the processes that wait for them.

The page of the report has the same in web/src/sharing.ts, with the same results to the last bit:
no operations here but those that IEEE 754 fixes.
"""

import math
from collections import deque
from collections.abc import Generator
from heapq import heappop, heappush
from typing import TypeAlias

# A process yields what it does next: a resource, how long that takes alone, how much of the
# resource it takes. None: it sleeps until it is woken.
Task: TypeAlias = "tuple[Shared, float, float] | None"
Process: TypeAlias = Generator[Task, None, None]


class Shared:
    """A resource whose users all slow down alike when they want more than there is."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.demand = 0.0
        self.used = 0.0  # demand that was met, times milliseconds
        self._done = 0.0  # work that a task has had which was there from the start
        self._tasks: list[tuple[float, int, float, Process]] = []
        self._count = 0

    def add(self, process: Process, work: float, demand: float) -> None:
        """Begin a task of `process`."""
        self._count += 1
        heappush(self._tasks, (self._done + work, self._count, demand, process))
        self.demand += demand

    def left_ms(self) -> float:
        """Until its next task is done, if nothing begins meanwhile."""
        if not self._tasks:
            return math.inf
        return max(0.0, self._tasks[0][0] - self._done) / self._rate()

    def pass_ms(self, ms: float) -> None:
        """Let time go by."""
        self._done += ms * self._rate()
        self.used += ms * min(self.demand, self.capacity)

    def pop(self) -> Process:
        """End the next task. Returns the process that waited for it."""
        end, _, demand, process = heappop(self._tasks)
        self._done = max(self._done, end)
        self.demand = self.demand - demand if self._tasks else 0.0
        return process

    def _rate(self) -> float:
        return self.capacity / self.demand if self.demand > self.capacity else 1.0


class Clock:
    """Runs processes in the order of their events. `now` is in milliseconds."""

    def __init__(self, resources: tuple[Shared, ...]) -> None:
        self.now = 0.0
        self._resources = resources
        self._ready: deque[Process] = deque()
        self._asleep: set[Process] = set()

    def start(self, process: Process) -> None:
        """Let it run at the present time."""
        self._ready.append(process)

    def wake(self, process: Process) -> None:
        """If it sleeps: let it look again at what it sleeps for."""
        if process in self._asleep:
            self._asleep.remove(process)
            self._ready.append(process)

    def run(self, last: Process) -> None:
        """Until `last` ends. Raises `RuntimeError` if all sleep before that."""
        while True:
            while self._ready:
                process = self._ready.popleft()
                try:
                    task = next(process)
                except StopIteration:
                    if process is last:
                        return
                    continue
                if task is None:
                    self._asleep.add(process)
                else:
                    task[0].add(process, task[1], task[2])
            self._pass_to_next_event()

    def _pass_to_next_event(self) -> None:
        nearest = min(self._resources, key=Shared.left_ms)
        left = nearest.left_ms()
        if math.isinf(left):
            raise RuntimeError("all processes of the simulation sleep")
        self.now += left
        for resource in self._resources:
            resource.pass_ms(left)
        self._ready.append(nearest.pop())
