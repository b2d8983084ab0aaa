"""How many cores other programs took while the script ran."""

import os
import time
from typing import NamedTuple

import psutil

from slipstream.doctor.record.counters import _read

_HERTZ = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MOST_BYTES = 1 << 16  # hundreds of cores
_IDLE = (3, 4)  # of the fields of /proc/stat: idle, and waiting for a disk
_GUESTS = 8  # from here on time is counted that is in other fields already


class _Used(NamedTuple):
    """Seconds so far."""

    wall: float
    by_all: float
    by_own: float


class Others:
    """Counts from when it is made. Of the cores that this process may use; those that nobody else
    needs do not matter, so their number is kept beside it.
    """

    def __init__(self) -> None:
        self._before = _used()

    def facts(self) -> dict[str, float] | None:
        """Cores on average; None where a system does not say, or several of our processes run."""
        now = _used()
        if self._before is None or now is None or int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
            return None
        wall = now.wall - self._before.wall
        if wall <= 0:
            return None
        own = max(0.0, now.by_own - self._before.by_own) / wall
        by_all = max(0.0, now.by_all - self._before.by_all) / wall
        cores = float(len(os.sched_getaffinity(0)))
        return {"own": own, "others": max(0.0, by_all - own), "cores": cores}


def _used() -> _Used | None:
    text = _read("/proc/stat", _MOST_BYTES)
    if text is None:
        return None
    names = {b"cpu%d" % number for number in os.sched_getaffinity(0)}
    ticks = sum(
        sum(int(field) for place, field in enumerate(fields[:_GUESTS]) if place not in _IDLE)
        for name, *fields in (line.split() for line in text.splitlines() if line[:3] == b"cpu")
        if name in names
    )
    return _Used(time.monotonic(), ticks / _HERTZ, _own_seconds())


def _own_seconds() -> float:
    """Of this process and all that it started, those that are over included."""
    own = psutil.Process()
    seconds = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            seconds += sum(process.cpu_times()[:4])
        except psutil.Error:  # over by now; its parent counts it
            continue
    return seconds
