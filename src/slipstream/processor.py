"""What the processor can do."""

from functools import lru_cache
from pathlib import Path

_TITLES = ("flags", "Features")  # on x86, and on ARM
_ARITHMETIC = {
    "bf16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "f16": frozenset({"avx512_fp16", "amx_fp16", "asimdhp"}),
}


@lru_cache(maxsize=4)
def cpu_flags(file: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """As Linux names it; nothing on other systems.

    >>> isinstance(cpu_flags(), frozenset)
    True
    """
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    found = (line.partition(":")[2].split() for line in lines if line.startswith(_TITLES))
    return frozenset(next(found, ()))


def why_no(precision: str) -> str | None:
    """Why the processor would be slow in "bf16" or "f16"; None where it is not, or not known."""
    flags = cpu_flags()
    if flags and precision in _ARITHMETIC and not flags & _ARITHMETIC[precision]:
        return f"the processor has no arithmetic in {precision}"
    return None
