"""What numbers were measured on."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from slipstream.cpu import usable_cores


def describe_machine() -> dict[str, object]:
    """Processor, cores and versions: enough to judge a number, nothing that names a host."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": usable_cores(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("slipstream", "torch", "numpy", "pillow")},
    }


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
