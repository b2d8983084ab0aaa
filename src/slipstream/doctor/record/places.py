"""Which line of the user's own code is running."""

import os
import sys
import sysconfig
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep  # noqa: PTH100,PTH120
_FOREIGN = tuple(
    os.path.join(path, "")  # noqa: PTH118
    for key in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    if (path := sysconfig.get_paths().get(key))
)
_HERE = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118
_known: dict[CodeType, bool] = {}
_COMMON = ("docs", "examples", "scripts", "test", "tests")  # that some packages bring by mistake


@cache
def _installed() -> tuple[str, ...]:
    """Packages that pip has put into folders of PYTHONPATH, by its own records of them."""
    found: set[str] = set()
    for folder in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        place = Path(os.path.abspath(folder))  # noqa: PTH100  as `site` does
        with suppress(OSError):
            for record in place.glob("*.dist-info/RECORD"):
                lines = record.read_text(errors="replace").splitlines()
                names = {line.partition("/")[0] for line in lines}.difference(_COMMON)
                found.update(f"{place / name}{os.sep}" for name in names if name.isidentifier())
    return tuple(found)


def is_users(code: CodeType) -> bool:
    """Whether code is neither Python's, nor an installed package's, nor ours."""
    known = _known.get(code)
    if known is None:
        known = _known[code] = not is_foreign(code.co_filename)
    return known


def is_foreign(file: str) -> bool:
    """Whether a file is Python's, an installed package's, or ours."""
    if file.startswith("<ipython-input"):
        return False
    return (
        file.startswith((*_FOREIGN, *_installed(), _PACKAGE, "<"))
        or "site-packages" in file
        or "dist-packages" in file
    )


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code at or above this one."""
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    return frame


def called_by_user(depth: int = 1) -> bool:
    """Whether the function that asks was called by the user's code itself, but for functions of
    ours in between; `depth` frames are left out.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code)


def place_of(frame: FrameType | None) -> str | None:
    """file:line of it, relative to the working directory where it lies below."""
    if frame is None:
        return None
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def users_place(depth: int = 1) -> str | None:
    """file:line of the user's code that called; `depth` frames are left out."""
    return place_of(users_frame(sys._getframe(depth + 1)))


def users_places(most: int = 4) -> tuple[tuple[CodeType, int], ...]:
    """The innermost lines of the user's code that led here."""
    found: list[tuple[CodeType, int]] = []
    frame = users_frame(sys._getframe(2))
    while frame is not None and len(found) < most:
        found.append((frame.f_code, frame.f_lineno))
        frame = users_frame(frame.f_back)
    return tuple(found)


def users_depth() -> int:
    """How many frames the stack would have here without us: those of the user's script and of what
    it calls. Of the frames that lead to the script none is counted where we have started it.
    """
    codes: list[CodeType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    own = [code.co_filename.startswith(_PACKAGE) for code in codes]
    first = next((at for at in reversed(range(len(codes))) if is_users(codes[at])), None)
    if first is not None and any(own[first:]):
        own = own[: first + 1]
    return own.count(False)


def place_of_callable(thing: Any) -> str | None:
    """Where the user's code defines a function, or the class of an object that is called."""
    while hasattr(thing, "__wrapped__") or isinstance(thing, partial):
        thing = thing.func if isinstance(thing, partial) else thing.__wrapped__
    for name in ("__code__", "__call__", "forward"):
        found = thing if name == "__code__" else getattr(type(thing), name, None)
        code = getattr(getattr(found, "__func__", found), "__code__", None)
        code = getattr(getattr(found, "__wrapped__", None), "__code__", code)
        if isinstance(code, CodeType) and is_users(code):
            return f"{short_path(code.co_filename)}:{code.co_firstlineno}"
    return None


def short_path(file: str) -> str:
    """Relative to the working directory where it lies below."""
    return file[len(_HERE) :] if file.startswith(_HERE) else file


def full_path(file: str) -> str:
    """The reverse: of what `short_path` gave, also where the script has changed the folder since.
    Cells of notebooks have no path.
    """
    return file if file.startswith("<") else os.path.join(_HERE, file)  # noqa: PTH118
