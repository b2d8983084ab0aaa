"""Memory at its peak, and what would still be free then.

On a GPU it is what torch has allocated. On Linux without one it is the resident memory of the whole
process, other copies of the model included, as the kernel counts it; elsewhere it is not known.
Either way the counter of the peak is set back first, for the whole process: who reads it later sees
the peak since then.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

_RESETS = "5"  # of the peak; see proc(5), clear_refs
_LEAST_LEAK = 1 << 19


@dataclass(frozen=True)
class Peak:
    """`bytes` at most, and the share of all memory that was free then; None: not known."""

    bytes: int | None
    headroom: float | None

    @property
    def mb(self) -> float | None:
        """In millions of bytes."""
        return None if self.bytes is None else self.bytes / 1e6


def peak_of(call: Callable[[], object], device: torch.device) -> Peak:
    """While something is called; call it before, so that it has come into its stride."""
    if not _reset(device):
        call()
        return Peak(None, None)
    call()
    found = _peak_bytes(device)
    return Peak(found, _headroom(device, found))


def used_bytes(device: torch.device) -> int:
    """Now: by torch on a GPU, else by the process."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return int(torch.cuda.memory_allocated(device))
    import psutil

    return int(psutil.Process().memory_info().rss)


def leak_of(call: Callable[[], object], device: torch.device, calls: int = 7) -> int:
    """Bytes that every call keeps at least; 0 where it cannot be told from nothing. The first two
    calls do not count.
    """
    used = []
    for _ in range(calls):
        call()
        used.append(used_bytes(device))
    least = min(after - before for before, after in pairwise(used[1:]))
    return least if least >= _LEAST_LEAK else 0


def _reset(device: torch.device) -> bool:
    """Whether there is a counter; it starts anew."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        Path("/proc/self/clear_refs").write_text(_RESETS, encoding="ascii")
    except OSError:
        return False
    return device.type == "cpu"


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device))
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _headroom(device: torch.device, peak: int) -> float:
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return (free + torch.cuda.memory_reserved(device) - peak) / total
    import psutil

    memory = psutil.virtual_memory()
    free, total = memory.available, memory.total
    limit = _limit()
    if limit is not None and limit[1] < total:
        free, total = min(free, limit[1] - limit[0]), limit[1]
    return float((free + used_bytes(device) - peak) / total)


def _limit(root: Path = Path("/sys/fs/cgroup")) -> tuple[int, int] | None:
    """Bytes that the container uses, and those that it may; None without a limit."""
    for used, most in (
        ("memory.current", "memory.max"),
        ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes"),
    ):
        try:
            return int((root / used).read_text()), int((root / most).read_text())
        except (OSError, ValueError):  # another version, or "max"
            continue
    return None
