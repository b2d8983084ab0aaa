"""Looks at a thread many times a second and counts where it finds it."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

from slipstream._native import frames_of
from slipstream.doctor.capture import Line
from slipstream.doctor.record.places import is_users, short_path

_MOST_LINES = 400
_MOST_SAMPLES = 50_000
# A thread that computes gives way this soon. With Python's own 5 ms it would mostly be found where
# it waits, which is where it gives way by itself.
_GIVE_WAY_S = 0.00005
# The user's code and line, the code that ran and its module, the stage, the loop's code and line.
_Key = tuple[CodeType, int, CodeType | None, str, str, CodeType | None, int]


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
        self.cpu_ns = 0  # what it has cost
        self._stopped = self._is_paused = False
        self._gave_way_s = sys.getswitchinterval()
        self._thread = threading.Thread(target=self._run, name="slipstream-sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        sys.setswitchinterval(min(_GIVE_WAY_S, self._gave_way_s))
        self._thread.start()

    def pause(self) -> None:
        """Look away for a while."""
        self._is_paused = True
        sys.setswitchinterval(self._gave_way_s)

    def resume(self) -> None:
        """The end of `pause`."""
        self._is_paused = False
        sys.setswitchinterval(min(_GIVE_WAY_S, self._gave_way_s))

    def stop(self) -> None:
        """End."""
        sys.setswitchinterval(self._gave_way_s)
        self._stopped = True
        self._thread.join(1.0)

    def lines(self) -> list[Line]:
        """What was found, the most frequent first."""
        return [_line(key, count) for key, count in self._most_common()]

    def samples(self) -> list[list[int]]:
        """When it was found where: [time, which of `lines`]."""
        numbers = {key: number for number, (key, _) in enumerate(self._most_common())}
        return [[at, numbers[key]] for at, key in self._samples if key in numbers]

    def _most_common(self) -> list[tuple[_Key, int]]:
        return Counter(dict(list(self._counts.items()))).most_common(_MOST_LINES)

    def _run(self) -> None:
        while not self._stopped:
            time.sleep(self.interval_s)
            if not self._is_paused:
                # Nothing may hold its frames while this sleeps: they hold the script's tensors.
                # One after the other, before anything that takes time: the thread goes on soon.
                self._note(self._stage(), frames_of(self._watched))
            self.cpu_ns = time.thread_time_ns()

    def _note(self, stage: str, frames: list[tuple[FrameType, int]]) -> None:
        callers = iter(frames)
        frame, line = next((found for found in callers if is_users(found[0].f_code)), (None, 0))
        if frame is None:
            return
        leaf, loop = frames[0][0], self._loop()
        outer, outer_line = next((found for found in callers if found[0].f_code is loop), (None, 0))
        key = (
            frame.f_code, line, None if leaf is frame else leaf.f_code,
            leaf.f_globals.get("__name__", ""), stage, None if outer is None else loop, outer_line,
        )  # fmt: skip
        self._counts[key] += 1
        if len(self._samples) < _MOST_SAMPLES:
            self._samples.append((time.perf_counter_ns(), key))


def _line(key: _Key, count: int) -> Line:
    code, number, leaf, module, stage, loop, outer = key
    name = ""
    if leaf is not None:
        function = leaf.co_qualname if sys.version_info >= (3, 11) else leaf.co_name
        name = f"{module}.{function}"
    return Line(
        _place(code, number), code.co_name, name, stage, count,
        "" if loop is None else _place(loop, outer),
    )  # fmt: skip


def _place(code: CodeType, number: int) -> str:
    return f"{short_path(code.co_filename)}:{number}"
