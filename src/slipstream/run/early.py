"""Variables that a script sets before it loads torch or NumPy, which look at them when they are
loaded: as many threads as `OMP_NUM_THREADS` says, for one.

In a process of ours both are loaded before the script begins. So its first trial notes such
variables, and whatever starts later starts with them.
"""

import builtins
import json
import os
from pathlib import Path
from typing import Any

_PREFIXES = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "VECLIB_", "NUMEXPR_", "TORCH_",
    "PYTORCH_",
)  # fmt: skip
_LIBRARIES = ("torch", "numpy")
_OURS = ("slipstream", "torch", "numpy", "PIL", "psutil", "rich", "typer")  # loaded by then
_FILE = "early.json"
_BEFORE = "SLIPSTREAM_EARLY"  # what the user has set instead


def note_early(place: Path) -> None:
    """Until the script loads torch; `place` gets what it has set by then."""
    before, load = _found(), builtins.__import__

    def noting(name: str, *args: Any, **kwargs: Any) -> Any:
        importer = str((args[0] if args and args[0] else {}).get("__name__", ""))
        is_it = name.partition(".")[0] in _LIBRARIES and importer.partition(".")[0] not in _OURS
        if is_it and builtins.__import__ is noting:
            if name.partition(".")[0] == "torch":
                builtins.__import__ = load
            now = _found()
            names = {name for name in {*before, *now} if before.get(name) != now.get(name)}
            changed = {name: now.get(name) for name in names}
            if changed:
                (place / _FILE).write_text(json.dumps(changed))
        return load(name, *args, **kwargs)

    builtins.__import__ = noting


def read_early(place: Path) -> dict[str, str | None]:
    """What was noted there; None for what the script takes away."""
    file = place / _FILE
    found: dict[str, str | None] = json.loads(file.read_text()) if file.exists() else {}
    return found


def take_over(early: dict[str, str | None]) -> None:
    """For all processes that this one starts; `give_back` has to be called there."""
    before = {name: os.environ.get(name) for name in early}
    _set(early)
    os.environ[_BEFORE] = json.dumps(before)


def give_back() -> None:
    """The libraries are loaded: the script finds the user's variables, and sets them itself."""
    _set(json.loads(os.environ.pop(_BEFORE, "{}")))


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _found() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
