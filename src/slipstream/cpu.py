"""How many cores this process may really use."""

import math
import os
from pathlib import Path

_V1_FOLDERS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")


def usable_cores(root: Path = Path("/")) -> int:
    """Cores that affinity and the cgroup's CPU quota leave to this process; at least 1.

    `root` is where `/proc` and `/sys` are looked up.

    >>> usable_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = min((q for q in (_quota_v2(root), _quota_v1(root)) if q is not None), default=None)
    if quota is not None:
        # Rounded up: a part of a core left idle is lost, one thread that waits a little is not.
        cores = min(cores, math.ceil(quota))
    return max(1, cores)


def throttled_ns(root: Path = Path("/")) -> dict[Path, int]:
    """Nanoseconds for which the quota of this process's cgroup, and of those above it, has stopped
    its threads so far, added up over cores; empty where the system does not count it.
    """
    base = root / "sys/fs/cgroup"
    counted = [
        (folder, _count(folder / "cpu.stat", "throttled_usec", 1000))
        for folder in _chain(base, _group(root, "0", ""))
    ] + [
        (folder, _count(folder / "cpu.stat", "throttled_time", 1))
        for name in _V1_FOLDERS
        for folder in _chain(base / name, _group(root, None, "cpu"))
    ]
    return {folder: count for folder, count in counted if count is not None}


def _quota_v2(root: Path) -> float | None:
    base = root / "sys/fs/cgroup"
    quotas = [_parse_cpu_max(folder / "cpu.max") for folder in _chain(base, _group(root, "0", ""))]
    return min((q for q in quotas if q is not None), default=None)


def _quota_v1(root: Path) -> float | None:
    quotas: list[float] = []
    for name in _V1_FOLDERS:
        for folder in _chain(root / "sys/fs/cgroup" / name, _group(root, None, "cpu")):
            quota = _read_number(folder / "cpu.cfs_quota_us")
            period = _read_number(folder / "cpu.cfs_period_us")
            if quota is not None and period and quota > 0:
                quotas.append(quota / period)
    return min(quotas, default=None)


def _chain(base: Path, group: str) -> list[Path]:
    """The group's folder and all above it: a parent's quota binds its children."""
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]


def _group(root: Path, number: str | None, controller: str) -> str:
    """Path of this process's cgroup, from lines `number:controllers:path`."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if parts[0] == number or (number is None and controller in parts[1].split(",")):
            return parts[2]
    return ""


def _parse_cpu_max(path: Path) -> float | None:
    try:
        quota, period = path.read_text().split()[:2]
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _count(path: Path, name: str, unit: int) -> int | None:
    try:
        counts = dict(line.split() for line in path.read_text().splitlines())
        return int(counts[name]) * unit
    except (OSError, ValueError, KeyError):
        return None
