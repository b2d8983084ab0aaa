"""Warnings name the script's line, whoever stands between it and what warns."""

import warnings
from pathlib import Path
from typing import Any

import slipstream
from slipstream.patches import Patches
from slipstream.warned import blame_the_script

_WRAPPER = "def call(function):\n    return function()\n"


def call(function: Any) -> Any:
    """Through a function of ours."""
    scope: dict[str, Any] = {}
    place = Path(slipstream.__file__).parent / "made_up.py"
    exec(compile(_WRAPPER, str(place), "exec"), scope)
    return scope["call"](function)


def warn(stacklevel: int) -> None:
    warnings.warn("careful", stacklevel=stacklevel)


def seen(stacklevel: int) -> str:
    patches = Patches()
    blame_the_script(patches)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(lambda: warn(stacklevel))
    finally:
        patches.undo()
    assert caught[0].filename == __file__
    return Path(__file__).read_text().splitlines()[caught[0].lineno - 1].strip()


def test_ours_are_passed_over() -> None:
    # By the library's own line, by that of the function it was given, and by ours that called it.
    assert seen(1).endswith('warnings.warn("careful", stacklevel=stacklevel)')
    assert seen(2).endswith("call(lambda: warn(stacklevel))")
    assert seen(3).endswith('return scope["call"](function)')
