"""The ladder: the live loop with less and less of loading, from a batch that is there already up.

Climbed when the recording proper is over. What the script writes meanwhile (checkpoints, logs,
output) is thrown away: it was trained on the same batch over and over.
"""

import builtins
import io
import itertools
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

from slipstream.doctor.attribute import step_times
from slipstream.doctor.capture import Rung, Span
from slipstream.doctor.record.rungs import AS_IT_IS, COLD_FILES, COLLATE_ONLY, SAME_SAMPLES, Rungs
from slipstream.patches import Patches

if TYPE_CHECKING:
    from slipstream.doctor.record.session import Session

CACHED = "cached batch"
_WAYS = (
    (CACHED, AS_IT_IS),
    ("collate and hand-over", COLLATE_ONLY),
    ("the same samples again", SAME_SAMPLES),
    ("files not in memory", COLD_FILES),
)
_CHANGES = ("rename", "replace", "remove", "unlink", "rmdir", "truncate", "link", "symlink")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_STEPS = 12
_SECONDS = 10.0
_SETTLE = 3


class Ladder:
    """Knows on which rung the loop stands. Asked for every batch."""

    def __init__(self, session: "Session", rungs: Rungs, loop: int, ahead: int) -> None:
        """`loop` is the loader that is looked at; `ahead` batches are made before it notices."""
        self._session = session
        self._rungs = rungs
        self.loop = loop
        self._ahead = ahead
        self._number = -1
        self._patches = Patches()
        self._spans: list[list[Span]] = []

    @property
    def gives_cached(self) -> bool:
        """Whether the loop is to get the batch that it had before."""
        return self._number == 0

    def begin(self) -> None:
        """Keep out what the script writes, and step on the first rung."""
        self._output = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = io.StringIO()
        self._patches.replace(torch, "save", lambda _: lambda *args, **kwargs: None)
        self._patches.replace(builtins, "open", _read_only)
        self._patches.replace(io, "open", _read_only)  # which is what paths open files with
        self._patches.replace(os, "open", _read_only_descriptor)
        # What was not written cannot be renamed, and what was must not be removed.
        for name in _CHANGES:
            self._patches.replace(os, name, lambda _: lambda *args, **kwargs: None)
        self._step_up()

    def end(self) -> None:
        """Let it write again."""
        sys.stdout, sys.stderr = self._output
        self._patches.undo()
        self._rungs.now = AS_IT_IS

    def is_over(self) -> bool:
        """Another batch is asked for: whether the top was reached."""
        elapsed, steps = time.perf_counter() - self._began, self._steps
        self._steps += 1
        wanted = self._settle(self._number) + _STEPS
        enough = steps > wanted or (elapsed > _SECONDS and steps > wanted - _STEPS + 2)
        if not enough and elapsed < 3 * _SECONDS:
            return False
        if self._number + 1 == len(_WAYS):
            return True
        self._step_up()
        return False

    def rungs(self) -> list[Rung]:
        """What was found, when all is over."""
        found = []
        for number, spans in enumerate(self._spans):
            times = step_times(spans, self.loop, self._session.clock)
            found.append(Rung(_WAYS[number][0], times[self._settle(number) :]))
        return found

    @property
    def spans(self) -> list[Span]:
        """Of all rungs."""
        return list(itertools.chain(*self._spans))

    def _settle(self, number: int) -> int:
        """Steps until what was made before is gone."""
        return _SETTLE + (self._ahead if number else 0)

    def _step_up(self) -> None:
        self._number += 1
        self._rungs.now = _WAYS[self._number][1]
        self._session.trace.spans = []
        self._spans.append(self._session.trace.spans)
        self._steps = 0
        self._began = time.perf_counter()


def _read_only(original: Any) -> Any:
    def open_for_reading(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if any(letter in mode for letter in "wax+"):
            return original(os.devnull, mode.replace("x", "w"), *args, **kwargs)
        return original(file, mode, *args, **kwargs)

    return open_for_reading


def _read_only_descriptor(original: Any) -> Any:
    def open_for_reading(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & _WRITES:
            return int(original(os.devnull, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)))
        return int(original(path, flags, *args, **kwargs))

    return open_for_reading
