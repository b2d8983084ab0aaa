"""Looks at a thread many times a second and counts where it finds it."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

from slipstream.doctor.capture import Line
from slipstream.doctor.record.places import is_users, short_path

_MOST_LINES = 400
# A thread that computes gives way this soon. With Python's own 5 ms it would mostly be found where
# it waits, which is where it gives way by itself.
_GIVE_WAY_S = 0.00005


class Sampler:
    """Counts lines of one thread. `stage()` says what it is at. Ends with `stop` or the process."""

    def __init__(self, interval_s: float, stage: Callable[[], str]) -> None:
        self.interval_s = interval_s
        self._stage = stage
        self._watched = threading.get_ident()
        self._counts: Counter[tuple[CodeType, int, CodeType | None, str]] = Counter()
        self.cpu_ns = 0  # what it has cost
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="slipstream-sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._gave_way_s = sys.getswitchinterval()
        sys.setswitchinterval(min(_GIVE_WAY_S, self._gave_way_s))
        self._thread.start()

    def stop(self) -> None:
        """End."""
        sys.setswitchinterval(self._gave_way_s)
        self._stopped = True
        self._thread.join(1.0)

    def lines(self) -> list[Line]:
        """What was found, the most frequent first."""
        found = Counter(dict(list(self._counts.items())))
        return [_line(*key, count) for key, count in found.most_common(_MOST_LINES)]

    def _run(self) -> None:
        while not self._stopped:
            time.sleep(self.interval_s)
            frame = sys._current_frames().get(self._watched)
            if frame is not None:
                self._note(frame)
            self.cpu_ns = time.thread_time_ns()

    def _note(self, leaf: FrameType) -> None:
        frame: FrameType | None = leaf
        while frame is not None and not is_users(frame.f_code):
            frame = frame.f_back
        if frame is None:
            return
        key = (frame.f_code, frame.f_lineno, None if leaf is frame else leaf.f_code, self._stage())
        self._counts[key] += 1


def _line(code: CodeType, number: int, leaf: CodeType | None, stage: str, count: int) -> Line:
    name = ""
    if leaf is not None:
        function = leaf.co_qualname if sys.version_info >= (3, 11) else leaf.co_name
        name = f"{Path(leaf.co_filename).stem}.{function}"
    return Line(f"{short_path(code.co_filename)}:{number}", code.co_name, name, stage, count)
