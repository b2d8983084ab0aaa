"""Sizes and shares as people type them."""

import math
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


def parse_share(text: str) -> float:
    """A share of a whole, from a percentage or a number below 1.

    >>> parse_share("5%"), parse_share("0.05")
    (0.05, 0.05)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    share = math.nan if match is None else float(match[1]) / (100 if match[2] else 1)
    if not share < 1:
        raise UsageError(f"{text!r} is no share. Examples: 5%, 0.05.")
    return share
