"""What the processor can do."""

from functools import lru_cache
from pathlib import Path

_TITLES = ("flags", "Features")  # on x86, and on ARM


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
