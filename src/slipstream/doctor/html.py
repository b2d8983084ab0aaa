"""The report as one sealed HTML page: the template that `make web` builds, with data in it."""

import json
from importlib.resources import files
from pathlib import Path

from slipstream.doctor.view import PageView

_PLACE = "__SLIPSTREAM_DATA__"
# Inside a script element only these could end it, or be read as another line of code.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def template() -> str:
    """The page without data."""
    return files("slipstream.doctor").joinpath("page.html").read_text(encoding="utf-8")


def write_page(data: PageView, path: Path) -> None:
    """Write the page that shows `data`. Raises `ValueError` if a number in it is not finite."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)
    before, after = template().split(_PLACE)
    path.write_text(before + text + after, encoding="utf-8")
