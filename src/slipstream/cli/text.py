"""Lines for people: wrapped at words, and lists that end in time."""

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

SHOWN_ITEMS = 20
_LINE_WIDTH = 80
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


def say(text: str, *, indent: str = "") -> None:
    """Print a sentence in lines of at most 80 characters; words, such as paths, stay whole."""
    print(
        textwrap.fill(
            text,
            _LINE_WIDTH,
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def say_items(items: Sequence[Mapping[str, str]], more: str) -> None:
    """Print key and reason of the first items; `more` says where the rest is."""
    for entry in items[:SHOWN_ITEMS]:
        say(f"{entry['key']}: {entry['reason']}", indent="  ")
    if len(items) > SHOWN_ITEMS:
        say(f"… and {len(items) - SHOWN_ITEMS:,} more{more}", indent="  ")


def group_reasons(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by reason, where reasons that differ in numbers only are one.

    >>> group_reasons({"3 stray bytes": 1, "14 stray bytes": 2, "other 7": 1})
    {'other 7': 1, '… stray bytes': 3}
    """
    shapes = Counter(_NUMBER.sub("…", reason) for reason in counts)
    grouped: Counter[str] = Counter()
    for reason, count in counts.items():
        shape = _NUMBER.sub("…", reason)
        grouped[shape if shapes[shape] > 1 else reason] += count
    return dict(sorted(grouped.items()))
