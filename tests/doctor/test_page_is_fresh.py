"""The committed page is built from the committed sources; needs no node to find out."""

import hashlib
import re
from pathlib import Path

import pytest

from slipstream.doctor.html import template

_WEB = Path(__file__).parents[2] / "web"


@pytest.mark.skipif(not _WEB.is_dir(), reason="the sources of the page are not here")
def test_the_page_was_built_from_these_sources() -> None:
    # web/build.mjs does the same.
    names = [f"src/{path.name}" for path in sorted((_WEB / "src").iterdir())]
    found = hashlib.sha256()
    for name in [*names, "build.mjs", "package-lock.json"]:
        found.update(f"{name}\n".encode())
        found.update((_WEB / name).read_bytes())
    carried = re.findall(r'name="slipstream-source" content="(\w+)"', template())
    assert carried == [found.hexdigest()], "page.html is older than web/. Run: make web"
