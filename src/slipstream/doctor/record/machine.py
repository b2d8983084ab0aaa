"""The machine and the settings of a process, as plain facts. No environment, no names of users."""

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil
import torch

from slipstream.cpu import usable_cores
from slipstream.doctor.record.places import short_path

_LIBRARIES = ("torch", "torchvision", "numpy", "pillow", "lightning", "accelerate", "transformers")
# Flags that slow a run down, and say nothing about whose it is.
_FLAGS = ("CUDA_LAUNCH_BLOCKING", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_LOGS")
_READS, _READ_BYTES = 50, 4096


def describe_machine() -> dict[str, Any]:
    """Processor, memory, devices, versions."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 1,
        "usable_cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "shared_memory_bytes": _shared_memory(),
        "devices": [
            torch.cuda.get_device_properties(k).name for k in range(torch.cuda.device_count())
        ]
        if torch.cuda.is_available()
        else [],
        "capability": list(torch.cuda.get_device_capability())
        if torch.cuda.is_available()
        else None,
        "device_memory_bytes": torch.cuda.get_device_properties(0).total_memory
        if torch.cuda.is_available()
        else None,
        "python": platform.python_version(),
        "versions": {
            name: _version(name) for name in ("slipstream", *_LIBRARIES) if _version(name)
        },
    }


def _warm_read_us() -> float | None:
    """What it takes to read a few bytes that are in the page cache: of a program that is running,
    and so there.
    """
    try:
        file = os.open(sys.executable, os.O_RDONLY)
    except OSError:
        return None
    try:
        os.pread(file, _READ_BYTES, 0)
        began = time.perf_counter()
        for _ in range(_READS):
            os.pread(file, _READ_BYTES, 0)
        return (time.perf_counter() - began) / _READS * 1e6
    finally:
        os.close(file)


def describe_settings() -> dict[str, Any]:
    """Switches of torch that decide how fast it is, as they stand at the end."""
    settings: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "anomaly_detection": torch.is_anomaly_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "flags": {name: os.environ[name] for name in _FLAGS if name in os.environ},
        "warm_read_us": _warm_read_us(),
        "free_threaded": bool(getattr(sys, "_is_gil_enabled", lambda: True)() is False),
    }
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        counts = dynamo.counters
        settings["recompiles"] = sum(counts.get("recompiles", {}).values())
        settings["graph_breaks"] = sum(counts.get("graph_break", {}).values())
        settings["compilations"] = _compilations(dynamo)
    if "PIL.Image" in sys.modules:
        from PIL import features

        settings["libjpeg_turbo"] = bool(features.check_feature("libjpeg_turbo"))
    return settings


def _compilations(dynamo: Any) -> list[dict[str, Any]]:
    """What torch.compile compiled, and when, on the clock that spans are measured with."""
    shift = time.perf_counter_ns() - time.time_ns()
    found = []
    for entry in getattr(dynamo, "get_compilation_metrics", list)():
        start, end = getattr(entry, "start_time_us", None), getattr(entry, "end_time_us", None)
        if start is None or end is None:
            continue
        found.append(
            {
                "start": start * 1000 + shift,
                "ms": (end - start) / 1000,
                "where": f"{short_path(entry.co_filename or '')}:{entry.co_firstlineno}",
            }
        )
    return found


def cuda_is_in_use() -> bool:
    """Whether this process has begun to use CUDA; asking does not begin it."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _shared_memory() -> int | None:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
