"""How many cores other programs took while a script ran, and how many a quota kept from it."""

import os
import time
from typing import NamedTuple

import psutil

from slipstream.cpu import throttled_ns
from slipstream.doctor.record.counters import _read

_HERTZ = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MOST_BYTES = 1 << 16  # hundreds of cores
_IDLE = (3, 4)  # of the fields of /proc/stat: idle, and waiting for a disk
_GUESTS = 8  # from here on time is counted that is in other fields already
# Of launchers, each of which starts several processes that are one job.
_RANKS = ("LOCAL_WORLD_SIZE", "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_LOCAL_SIZE")


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
        self._cores = _own_cores()
        self._before = _used(self._cores)
        self._throttled, self._began = throttled_ns(), time.monotonic()

    def facts(self) -> dict[str, float] | None:
        """Cores on average; None where a system does not say, where these are other cores by now,
        or where several processes are one job.
        """
        now = _used(self._cores)
        is_same = self._cores == _own_cores()
        if self._before is None or now is None or not is_same or _has_ranks():
            return None
        wall = now.wall - self._before.wall
        if wall <= 0:
            return None
        own = max(0.0, now.by_own - self._before.by_own) / wall
        by_all = max(0.0, now.by_all - self._before.by_all) / wall
        return {"own": own, "others": max(0.0, by_all - own), "cores": float(len(self._cores))}

    def stopped(self) -> float | None:
        """Cores on average that a quota kept from going on; None where a system does not say."""
        now, wall = throttled_ns(), time.monotonic() - self._began
        # Of all groups above the one that was stopped most.
        more = [now[group] - count for group, count in self._throttled.items() if group in now]
        return max(more) * 1e-9 / wall if more and wall > 0 else None


def _own_cores() -> frozenset[int]:
    known = getattr(os, "sched_getaffinity", None)
    return frozenset(known(0)) if known is not None else frozenset()


def _has_ranks() -> bool:
    sizes = (os.environ.get(name, "") for name in _RANKS)
    return any(size.isdigit() and int(size) > 1 for size in sizes)


def _used(cores: frozenset[int]) -> _Used | None:
    text = _read("/proc/stat", _MOST_BYTES)
    if text is None or not cores:
        return None
    names = {b"cpu%d" % number for number in cores}
    try:
        ticks = sum(
            sum(int(field) for place, field in enumerate(fields[:_GUESTS]) if place not in _IDLE)
            for name, *fields in (line.split() for line in text.splitlines() if line[:3] == b"cpu")
            if name in names
        )
        return _Used(time.monotonic(), ticks / _HERTZ, _own_seconds())
    except (psutil.Error, OSError, ValueError):  # a system that shows less than it should
        return None


def _own_seconds() -> float:
    """Of this process and all that it started, those that are over included."""
    own = psutil.Process()
    seconds = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            seconds += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:  # over by now; its parent counts it
            continue
    return seconds
