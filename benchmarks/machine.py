"""What numbers were measured on."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from slipstream.cpu import usable_cores

_OURS = ("slipstream", "torch", "numpy", "pillow")
_RUNTIMES = ("torchvision", "torchao", "triton", "onnxruntime", "openvino")  # where there are any


def describe_machine() -> dict[str, object]:
    """Processor, cores and versions: enough to judge a number, nothing that names a host."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": usable_cores(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {
            **{name: _version(name) for name in _OURS},
            **{name: known for name in _RUNTIMES if (known := _version(name))},
        },
        **_device(),
    }


def _device() -> dict[str, object]:
    import torch

    if not torch.cuda.is_available():
        return {}
    return {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


_ARM_CORES = {
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd49": "Neoverse-N2",
    "0xd4f": "Neoverse-V2",
}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in facts.items()}
    if "model name" in named:
        return named["model name"]
    return _ARM_CORES.get(named.get("CPU part", ""), platform.processor() or "unknown processor")
