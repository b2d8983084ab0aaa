"""Sizes as people type them."""

import re

from slipstream.errors import UsageError

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
}


def parse_size(text: str) -> int:
    """Bytes from a number with a unit.

    >>> parse_size("64MB"), parse_size("256 MiB")
    (64000000, 268435456)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise UsageError(f"{text!r} is no size. Examples: 64MB, 256MiB, 1.5GB.")
    return int(float(match[1]) * _UNITS[match[2].lower()])
