"""Where the random generators will be when a batch's turn comes. A process finds out that goes
through the samples of every batch and makes no pixels: what it draws takes a part of the time, and
others make the batches meanwhile, each from the states that it was told.

It may be wrong, as where samples draw by what they see. Who takes a batch compares where it began
with where the one before has ended.
"""

import statistics
from collections import deque
from typing import Any

from slipstream.run.loading.crew import Crew
from slipstream.run.loading.indices import Indices
from slipstream.run.loading.knowledge import Knowledge
from slipstream.run.loading.states import States

_MOST_SHARE = 0.6  # of what a batch takes: beyond, hardly anything is gained
_JUDGED = 4
_MOST_MISTAKES = 2
_LEAST_PATIENCE_S = 2.0
_PATIENCE_TIMES = 5  # what a batch takes in the loop's process
_BEYOND = 4  # batches that are known and not asked for, at most


class Scout:
    """The first child of a crew. `begins` are the states of the next batches that nobody makes
    yet, in order. `states` are those of the first, unless that is `due` and somebody makes it.
    """

    def __init__(
        self, crew: Crew, indices: Indices, known: Knowledge, states: States, due: Any = None
    ) -> None:
        self._crew, self._indices, self._known = crew, indices, known
        self._front = dict(states)
        self._told: States | None = states
        self.begins: deque[States] = deque([self._front])
        self._asked: deque[int] = deque()
        self._is_stuck = False
        self._took: list[float] = []
        if due is not None:
            self.begins.clear()
            self._send(due)

    def listen(self) -> None:
        """Take what it has found."""
        while self._asked and (answer := self._crew.answer(self._asked[0])) is not None:
            self._asked.popleft()
            if answer.failure:
                self.was_wrong()  # whoever makes the batch says why
                return
            self._front = {**self._front, **answer.ends}
            self.begins.append(self._front)
            self._judge(answer.seconds)

    def ask(self, queued: int) -> None:
        """Have it go on. So many batches that the loop has not asked for are being made."""
        if not self.begins and not self._asked:
            self._is_stuck = True  # where the last one ends was never asked for
        while not self._is_stuck and len(self.begins) + len(self._asked) <= _BEYOND:
            index = self._indices.ahead(queued + len(self.begins) + len(self._asked) - 1)
            if index is None:
                return
            self._send(index)

    def _send(self, index: Any) -> None:
        self._asked.append(self._crew.scout(index, self._told))
        self._told = None

    @property
    def patience_s(self) -> float:
        """How long to wait for what it looks for."""
        return max(_LEAST_PATIENCE_S, _PATIENCE_TIMES * self._known.batch_s)

    @property
    def is_looking(self) -> bool:
        """Whether it may find more."""
        return bool(self._asked)

    def was_wrong(self) -> None:
        """It failed, or a batch began elsewhere than the one before ended."""
        self._known.mistakes += 1
        if self._known.mistakes >= _MOST_MISTAKES:
            self._known.scouts = False
        self._stop()

    def _judge(self, seconds: float) -> None:
        self._known.note_scouted(seconds)
        self._took.append(seconds)
        if len(self._took) == _JUDGED:
            share = statistics.median(self._took) / max(1e-9, self._known.batch_s)
            if share > _MOST_SHARE:
                self._known.scouts = False
                self._stop()

    def _stop(self) -> None:
        self._is_stuck = True
        self._asked.clear()
