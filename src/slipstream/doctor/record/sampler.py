"""Looks at a thread many times a second and counts where it finds it."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

from slipstream.doctor.capture import Line
from slipstream.doctor.record.places import is_users, place_of

_MOST_LINES = 400
_MOST_SAMPLES = 50_000
_Key = tuple[str, str, str, str, str]
# A thread that computes gives way this soon. With Python's own 5 ms it would mostly be found where
# it waits, which is where it gives way by itself.
_GIVE_WAY_S = 0.0005


class Sampler:
    """Counts lines of one thread. `stage()` says what it is at, `loop()` the code whose lines are
    noted as the outer ones. Ends with `stop` or the process.
    """

    def __init__(
        self,
        interval_s: float,
        stage: Callable[[], str],
        loop: Callable[[], CodeType | None] = lambda: None,
    ) -> None:
        self.interval_s = interval_s
        self._stage = stage
        self._loop = loop
        self._watched = threading.get_ident()
        self._counts: Counter[_Key] = Counter()
        self._samples: list[tuple[int, _Key]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slipstream-sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._gave_way_s = sys.getswitchinterval()
        sys.setswitchinterval(min(_GIVE_WAY_S, self._gave_way_s))
        self._thread.start()

    def stop(self) -> None:
        """End."""
        sys.setswitchinterval(self._gave_way_s)
        self._stopped.set()
        self._thread.join(1.0)

    def lines(self) -> list[Line]:
        """What was found, the most frequent first."""
        found = Counter(dict(list(self._counts.items())))
        return [Line(*key[:4], count, key[4]) for key, count in found.most_common(_MOST_LINES)]

    def samples(self) -> list[list[int]]:
        """When it was found where: [time, which of `lines`]."""
        numbers = {
            (line.where, line.function, line.leaf, line.stage, line.outer): number
            for number, line in enumerate(self.lines())
        }
        return [[at, numbers[key]] for at, key in self._samples if key in numbers]

    def _run(self) -> None:
        while not self._stopped.wait(self.interval_s):
            frame = sys._current_frames().get(self._watched)
            if frame is not None:
                self._note(frame)

    def _note(self, leaf: FrameType) -> None:
        frame: FrameType | None = leaf
        while frame is not None and not is_users(frame.f_code):
            frame = frame.f_back
        if frame is None:
            return
        name = leaf.f_code.co_qualname if sys.version_info >= (3, 11) else leaf.f_code.co_name
        module = leaf.f_globals.get("__name__", "")
        leaf_name = "" if leaf is frame else f"{module}.{name}"
        key = (
            place_of(frame) or "", frame.f_code.co_name, leaf_name, self._stage(),
            self._outer_of(frame),
        )  # fmt: skip
        self._counts[key] += 1
        if len(self._samples) < _MOST_SAMPLES:
            self._samples.append((time.perf_counter_ns(), key))

    def _outer_of(self, inner: FrameType) -> str:
        code = self._loop()
        frame: FrameType | None = inner.f_back if code is not None else None
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        return place_of(frame) or ""
