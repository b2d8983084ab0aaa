"""Memory that a call takes at its peak, what would still be free then, and what it keeps.

It is that of torch's tensors, on top of those that were there before. On a GPU torch counts it, and
its counter of the peak is set back first, for all who read it. On a processor a profiler of torch
notes every allocation; where it is missing or in use, nothing is known. What libraries take for
themselves is in neither.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_LEAST_LEAK = 1 << 16
_CALLS = 5


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
    found = _watched(call, device)
    if found is None:
        return Peak(None, None)
    most, kept = found
    return Peak(most, _headroom(device, most - kept))


def leak_of(call: Callable[[], object], device: torch.device) -> int | None:
    """Bytes that every call keeps at least, of several; None: not known. The first call does not
    count.
    """
    kept = []
    for _ in range(1 + _CALLS):
        found = _watched(call, device)
        if found is None:
            return None
        kept.append(found[1])
    return least if (least := min(kept[1:])) >= _LEAST_LEAK else 0


def _watched(call: Callable[[], object], device: torch.device) -> tuple[int, int] | None:
    """Bytes at the peak, and those that are left behind; it is called in any case."""
    if device.type == "cuda":
        return _watched_by_cuda(call, device)
    if device.type != "cpu" or not _start():
        call()
        return None
    try:
        call()
    finally:
        records: Any = torch._C._autograd._disable_profiler_legacy()
    now = most = 0
    for event in (event for thread in records for event in thread):
        if event.kind() == "memory_alloc":
            now += event.cpu_memory_usage()
            most = max(most, now)
    return most, now


def _watched_by_cuda(call: Callable[[], object], device: torch.device) -> tuple[int, int]:
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    after, most = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
    return most - before, after - before


def _start() -> bool:
    """Whether allocations are noted now."""
    try:
        parts: Any = torch._C._profiler
        config = parts.ProfilerConfig(
            parts.ProfilerState.CPU, False, True, False, False, False, parts._ExperimentalConfig()
        )
        torch._C._autograd._enable_profiler_legacy(config)
    except (AttributeError, TypeError, RuntimeError):  # another torch, or another profiler
        return False
    return True


def _headroom(device: torch.device, more: int) -> float:
    """`more`: than is taken now."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return (free + unused - more) / total
    import psutil

    memory = psutil.virtual_memory()
    free, total = memory.available, memory.total
    limit = _limit()
    if limit is not None and limit[1] < total:
        free, total = min(free, limit[1] - limit[0]), limit[1]
    return float((free - more) / total)


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
