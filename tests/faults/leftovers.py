"""What a process holds that a loader could have left behind: counted before and after a test."""

import gc
import os
import threading
import time
from collections import Counter
from pathlib import Path

import psutil

# The standard library starts these once, for spawn and forkserver, and keeps them by design.
_STANDARD_LIBRARY = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def holdings() -> dict[str, Counter[str]]:
    """Children, threads, descriptors and shared memory of this process, by name and number."""
    return {
        "child processes": Counter(_children()),
        "Python threads": Counter(thread.name for thread in threading.enumerate()),
        "system threads": Counter(_task_names()),
        "descriptors": Counter(_descriptors()),
        "shared mappings": Counter(_shared_mappings()),
        "/dev/shm": Counter(path.name for path in Path("/dev/shm").glob("torch_*")),
    }


def left_behind(before: dict[str, Counter[str]], patience_s: float) -> dict[str, dict[str, int]]:
    """What there is more of than before. Waits some time for it to go."""
    deadline = time.monotonic() + patience_s
    while True:
        gc.collect()
        now = holdings()
        more = {kind: dict(now[kind] - before[kind]) for kind in now if now[kind] - before[kind]}
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.05)


def _children() -> list[str]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
        except psutil.NoSuchProcess:
            continue
        if not any(name in command for name in _STANDARD_LIBRARY):
            found.append(f"{child.pid}")
    return found


def _task_names() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return names


def _descriptors() -> list[str]:
    targets = []
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208  no descriptor beyond the listing
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115
        except FileNotFoundError:
            continue
        # Sockets, pipes and the like: their kind, not their number, which is a new one each time.
        targets.append(target.split(":")[0] if ":[" in target else target)
    return targets


def _shared_mappings() -> list[str]:
    names = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        name = line.split(maxsplit=5)[5] if line.count(" ") > 5 and "/" in line else ""
        if "memfd:slipstream" in name or name.startswith("/dev/shm") or "/torch_" in name:
            names.append(name)
    return names
