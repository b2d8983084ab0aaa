"""Tables as text."""

from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def short(number: float) -> str:
    """Three digits, and never as a power of ten where it is large.

    >>> short(0.01234), short(12.34), short(1534.2)
    ('0.0123', '12.3', '1,534')
    """
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def text_of(shown: "RenderableType", width: int, *, color: bool = False) -> str:
    """What is shown, in lines of at most this width. Words are taken as they are: reasons are often
    those of others, and brackets in them mean nothing.
    """
    from rich.console import Console

    out = StringIO()
    Console(
        file=out, width=width, color_system="standard" if color else None, markup=False,
        highlight=False, emoji=False,
    ).print(shown)  # fmt: skip
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
