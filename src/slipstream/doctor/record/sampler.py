"""Looks at a thread many times a second and counts where it finds it."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType

from slipstream.doctor.capture import Line
from slipstream.doctor.record.places import is_users, place_of

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
        self._counts: Counter[tuple[str, str, str, str]] = Counter()
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
        return [Line(*key, count) for key, count in found.most_common(_MOST_LINES)]

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
        key = (place_of(frame) or "", frame.f_code.co_name, leaf_name, self._stage())
        self._counts[key] += 1
