"""What else the machine was short of: memory that was swapped, a device that others use, or heat.

Read at the beginning and at the end; None where a system does not count it.
"""

import mmap
from contextlib import suppress
from importlib import import_module
from typing import Any

from slipstream.doctor.record.counters import _read
from slipstream.doctor.record.machine import cuda_is_in_use

_THERMAL = 1  # NVML_PERF_POLICY_THERMAL


def swapped_in() -> int | None:
    """Pages that the machine has read back from swap."""
    return _count_in(_read("/proc/vmstat"), b"pswpin")


def own_swap() -> int | None:
    """Bytes of this process that lie in swap."""
    found = _count_in(_read("/proc/self/status"), b"VmSwap:")
    return None if found is None else found * 1024


def memory_stall() -> int | None:
    """Nanoseconds for which something waited for memory: this control group's, or the machine's."""
    for path in ("/sys/fs/cgroup/memory.pressure", "/proc/pressure/memory"):
        text = _read(path)
        for line in (text or b"").splitlines():
            if line.startswith(b"some"):
                return int(line.rpartition(b"total=")[2]) * 1000
    return None


def _count_in(text: bytes | None, name: bytes) -> int | None:
    for line in (text or b"").splitlines():
        fields = line.split()
        if len(fields) > 1 and fields[0] == name:
            return int(fields[1])
    return None


def device_state() -> dict[str, Any] | None:
    """Of the current device, where the package nvidia-ml-py is installed: how long heat has slowed
    it down since the driver was loaded, and how many processes use it.
    """
    if not cuda_is_in_use():
        return None
    with suppress(Exception):  # no such package, no such driver, no such right
        import torch

        pynvml: Any = import_module("pynvml")

        pynvml.nvmlInit()
        device = torch.cuda.current_device()
        uuid = torch.cuda.get_device_properties(device).uuid
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        slowed = pynvml.nvmlDeviceGetViolationStatus(handle, _THERMAL).violationTime
        return {"processes": len(processes), "slowed": int(slowed)}
    return None


class Pressure:
    """From the first steps on."""

    def __init__(self) -> None:
        self._swapped: int | None = None
        self._stalled: int | None = None
        self._device: dict[str, Any] | None = None

    def begin(self) -> None:
        """Count from now."""
        self._swapped, self._stalled = swapped_in(), memory_stall()
        self._device = device_state()

    def facts(self) -> list[dict[str, Any]]:
        """Since then."""
        found: list[dict[str, Any]] = []
        pages, stalled = swapped_in(), memory_stall()
        if pages is not None and self._swapped is not None and pages > self._swapped:
            waited = None if stalled is None else stalled - (self._stalled or 0)
            found.append(
                {
                    "name": "swap", "pages": pages - self._swapped, "own_bytes": own_swap(),
                    "stalled": waited, "page_bytes": mmap.PAGESIZE,
                }
            )  # fmt: skip
        now = device_state()
        if now is not None and self._device is not None:
            slowed = now["slowed"] - self._device["slowed"]
            found.append({"name": "device", "processes": now["processes"], "slowed": slowed})
        return found
