"""The child processes of one iteration as the loop sees them. Nothing here knows what to make."""

import contextlib
import os
import pickle
import select
import signal
import time
import warnings
import weakref
from dataclasses import dataclass, field
from typing import Any

from slipstream.loader.memory import Bytes, Forks, Leases, map_shared
from slipstream.loader.parcel import unwrap
from slipstream.loader.wire import Wire
from slipstream.loader.worker import DROP, SLOT
from slipstream.run.loading.child import (
    BATCH,
    FAILED,
    RESTART,
    SCOUT,
    SCOUTED,
    TASK,
    VERIFIED,
    VERIFY,
    Job,
)
from slipstream.run.loading.child import fork_child as _fork
from slipstream.run.loading.questions import Note
from slipstream.run.loading.states import States
from slipstream.run.loading.surroundings import surroundings


@dataclass
class Answer:
    """To one task: a batch with what became of the generators that it drew from, or a failure; of
    a verification, `failure` is what is wrong and `digest` what the batch is. A scout makes none.
    `seconds` is what it took.
    """

    batch: Any = None
    ends: States = field(default_factory=dict)
    failure: str = ""
    digest: str = ""
    entries: int = 0  # of what is long in the dataset, as they were there
    asked: list[Note] = field(default_factory=list)  # of the file system
    seconds: float = 0.0
    nbytes: int = 0


class Child:
    """One process and what is shared with it."""

    def __init__(self, job: Job) -> None:
        with warnings.catch_warnings():
            # Of threads that the child will not have. It needs none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid, end = _fork(job)
        self.wire = Wire(end)
        # Holds on to this very process: its number may become another's.
        self._handle = os.pidfd_open(self.pid)
        self.tasks: set[int] = set()
        self._slots: dict[int, Bytes] = {}
        self._leases: Leases[tuple[int, int]] = Leases()

    def send(self, kind: int, number: int, *parts: Any) -> None:
        """A task or a verification."""
        if kind == TASK:
            parts = (*parts, *self._take_back())
        if kind != RESTART:
            self.tasks.add(number)
        self.wire.send(pickle.dumps((kind, number, *parts), 5))

    def kill(self) -> None:
        """End it at once: it has nothing to put away."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def bury(self) -> None:
        """Wait for its end."""
        with contextlib.suppress(OSError):
            os.waitid(os.P_PIDFD, self._handle, os.WEXITED)
        self.let_go()

    def let_go(self) -> None:
        """Close what this process has of it."""
        self.wire.close()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def receive(self) -> list[tuple[int, Answer]]:
        """What has come."""
        answers = []
        while (message := self.wire.try_receive()) is not None:
            kind, number, *parts = pickle.loads(message)
            if kind == SLOT:
                descriptor = self.wire.take_descriptor()
                try:
                    self._slots[number] = map_shared(descriptor, parts[0])
                finally:
                    os.close(descriptor)
            elif kind == DROP:
                for slot in number:
                    self._slots.pop(slot, None)
            else:
                self.tasks.discard(number)
                answers.append((number, self._open(kind, parts)))
        return answers

    def _open(self, kind: int, parts: list[Any]) -> Answer:
        if kind == FAILED:
            return Answer(failure=parts[0])
        if kind == VERIFIED:
            return Answer(failure=parts[0], digest=parts[1], ends=parts[2])
        if kind == SCOUTED:
            return Answer(ends=parts[0], seconds=parts[1])
        assert kind == BATCH
        where, places, skeleton, ends, entries, asked, seconds = parts
        memory = where  # itself, or the number of a slot
        if isinstance(where, int):
            memory = self._leases.lend(self._slots[where], (where, Forks.count))
        batch = unwrap(skeleton, places, memory)
        nbytes = 0 if memory is None else memory.nbytes
        return Answer(
            batch, ends, entries=entries, asked=asked, seconds=seconds, nbytes=nbytes
        )  # fmt: skip

    def _take_back(self) -> tuple[list[int], list[int]]:
        """Slots to use again, and those that another forked process may still look at."""
        freed: list[int] = []
        retired: list[int] = []
        for slot, forks in self._leases.take_back():
            if forks == Forks.count:
                freed.append(slot)
            else:
                self._slots.pop(slot, None)
                retired.append(slot)
        return freed, retired


class Crew:
    """Children for one iteration, and for later ones where nothing has changed."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.contents = ""  # of what samples are made from, when it was started, where it shows
        self.surroundings = surroundings()
        self._numbers = self._void = 0
        self.answers: dict[int, Answer] = {}
        self.children: list[Child] = []
        self.has_scout = False
        self.owner = os.getpid()
        self.close = weakref.finalize(self, _end, self.children, self.owner)
        _all.add(self)

    def grow(self) -> None:
        """One more."""
        self.children.append(Child(self.job))

    def verify(self, index: Any, states: States) -> int:
        """Have a batch made twice. Returns the number of the answer."""
        self._numbers += 1
        self.children[0].send(VERIFY, self._numbers, index, states)
        return self._numbers

    def give(self, index: Any, states: States | None, *, beyond: int = 0) -> int:
        """Have a batch made, by the one with the least to do beyond the first ones."""
        self._numbers += 1
        chosen = min(self.children[beyond:], key=lambda one: len(one.tasks))
        chosen.send(TASK, self._numbers, index, states)
        return self._numbers

    def scout(self, index: Any, states: States | None) -> int:
        """Have the first one find out what a batch draws."""
        self._numbers += 1
        self.children[0].send(SCOUT, self._numbers, index, states)
        return self._numbers

    def restart(self, *, threads: int) -> None:
        """What was given and not answered is void. Each may take so many threads for pictures."""
        self._void = self._numbers
        for child in self.children:
            child.tasks.clear()
            child.send(RESTART, threads)
        self.answers.clear()

    def answer(self, number: int) -> Answer | None:
        """If it has come."""
        return self.answers.pop(number, None)

    def wait_for(self, number: int, seconds: float) -> Answer | None:
        """The answer, if it comes in time. Raises `Closed` where the child has ended."""
        deadline = time.monotonic() + seconds
        self.collect(0.0)
        while number not in self.answers:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.collect(left)
        return self.answers.pop(number)

    def collect(self, seconds: float) -> None:
        """What has come; waits that long for the first."""
        poll = select.poll()
        owners = {child.wire.fileno(): child for child in self.children}
        for descriptor in owners:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(max(0.0, 1000 * seconds)):  # below, it has no end
            for number, answer in owners[descriptor].receive():
                if number > self._void:
                    self.answers[number] = answer


_all: weakref.WeakSet[Crew] = weakref.WeakSet()


def end_all() -> None:
    """Those that work and those that wait: whoever has one finds it without children."""
    for crew in [*_all]:
        if crew.owner == os.getpid():
            crew.close()


def _end(children: list[Child], owner: int) -> None:
    is_ours = os.getpid() == owner
    for child in children:
        if is_ours:
            child.kill()  # all at once: each may have much memory to give back
    for child in children:
        if is_ours:
            child.bury()
        else:
            child.let_go()  # a forked process: they are the parent's
    children.clear()
