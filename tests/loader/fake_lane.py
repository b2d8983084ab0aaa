"""A lane whose copies pass when they are told to, and sources that notice what is done to them."""

import ctypes
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from slipstream.loader.cuda_lane import Sent
from slipstream.loader.structure import map_tensors, tensor_bytes

PATIENCE_S = 10.0


class Ticket:
    """Copies from addresses, done when it is told to pass, as a GPU does."""

    def __init__(self) -> None:
        self.has_passed = False
        self.copies: list[tuple[int, int, int]] = []

    def passes(self) -> None:
        for target, origin, size in self.copies:
            ctypes.memmove(target, origin, size)
        self.has_passed = True


class FakeLane:
    """Copies pass at once (`auto`), or when the test says so. Holds no host batch."""

    def __init__(self, *, auto: bool = True) -> None:
        self.auto = auto
        self.tickets: list[Ticket] = []
        self.marks: list[Ticket] = []
        self.marks_pass = True
        self.ended = threading.Event()

    @contextmanager
    def active(self) -> Iterator[None]:
        yield
        self.ended.set()

    def send(self, batch: Any) -> tuple[Sent, list[object]]:
        ticket = Ticket()

        def copy(tensor: torch.Tensor) -> torch.Tensor:
            target = torch.zeros_like(tensor)
            ticket.copies.append((target.data_ptr(), tensor.data_ptr(), tensor.nbytes))
            return target

        moved = map_tensors(batch, copy)
        if self.auto:
            ticket.passes()
        self.tickets.append(ticket)
        size = tensor_bytes(batch)
        return Sent(moved, ticket, nbytes=size, copied_bytes=size, pin_s=0.25), [batch]

    def finished(self, ticket: Ticket) -> bool:
        return ticket.has_passed

    def receive(self, sent: Sent) -> Any:
        return sent.batch

    def mark(self) -> Ticket:
        ticket = Ticket()
        ticket.has_passed = self.marks_pass
        self.marks.append(ticket)
        return ticket


class LyingLane(FakeLane):
    """Says that copies have passed when they have not."""

    def finished(self, ticket: Ticket) -> bool:
        return True


class Ring:
    """Source on few slots, each overwritten at the very moment its tensor is gone."""

    def __init__(self, slots: int, batches: int, size: int = 64) -> None:
        self.slots = [np.zeros(size, np.uint8) for _ in range(slots)]
        self.free = deque(range(slots))
        self.left = deque(range(batches))
        self.closed = 0

    def __iter__(self) -> "Ring":
        return self

    def __next__(self) -> dict[str, Any]:
        if not self.left:
            raise StopIteration
        wait_for(lambda: bool(self.free), "a free slot")
        number, value = self.free.popleft(), self.left.popleft()
        self.slots[number][:] = value % 251
        tensor = torch.from_numpy(self.slots[number])
        weakref.finalize(tensor, self.give_back, number)
        return {"x": tensor, "value": value}

    def give_back(self, number: int) -> None:
        self.slots[number][:] = 255
        self.free.append(number)

    def close(self) -> None:
        self.closed += 1


class Counted:
    """Source that counts what was asked of it; an exception among the items is raised."""

    def __init__(self, *items: Any) -> None:
        self.items = deque(items)
        self.asked = 0
        self.closed = threading.Event()

    def __iter__(self) -> "Counted":
        return self

    def __next__(self) -> Any:
        self.asked += 1
        if not self.items:
            raise StopIteration
        item = self.items.popleft()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        self.closed.set()


class Stuck(Counted):
    """Source that returns when it is interrupted, or after the test's patience."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = threading.Event()

    def __next__(self) -> Any:
        self.asked += 1
        self.interrupted.wait(PATIENCE_S)
        raise StopIteration


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {PATIENCE_S} s")
        time.sleep(0.0005)


def stays(condition: Callable[[], bool], seconds: float = 0.05) -> bool:
    """Whether the condition holds now and for a while."""
    deadline = time.monotonic() + seconds
    while condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def tensors(count: int, size: int = 4) -> list[torch.Tensor]:
    return [torch.full((size,), float(i)) for i in range(count)]


def run_copies_late(lane: FakeLane, stop: threading.Event) -> None:
    """The GPU: passes tickets in their order, some time after they were made."""
    done = 0
    while not stop.is_set():
        if done < len(lane.tickets):
            time.sleep(0.001)
            lane.tickets[done].passes()
            done += 1
        time.sleep(0.0002)
