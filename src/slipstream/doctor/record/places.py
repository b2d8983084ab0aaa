"""Which line of the user's own code is running."""

import os
import sys
import sysconfig
from types import CodeType, FrameType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep  # noqa: PTH100,PTH120
_FOREIGN = tuple(
    os.path.join(path, "")  # noqa: PTH118
    for key in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(key))
)
_HERE = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118
_known: dict[CodeType, bool] = {}


def is_users(code: CodeType) -> bool:
    """Whether code is neither Python's, nor an installed package's, nor ours."""
    known = _known.get(code)
    if known is None:
        file = code.co_filename
        known = not (
            file.startswith((*_FOREIGN, _PACKAGE, "<"))
            or "site-packages" in file
            or "dist-packages" in file
        )
        _known[code] = known
    return known


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code at or above this one."""
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    return frame


def place_of(frame: FrameType | None) -> str | None:
    """file:line of it, relative to the working directory where it lies below."""
    if frame is None:
        return None
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def users_place(depth: int = 1) -> str | None:
    """file:line of the user's code that called; `depth` frames are left out."""
    return place_of(users_frame(sys._getframe(depth + 1)))


def short_path(file: str) -> str:
    """Relative to the working directory where it lies below."""
    return file[len(_HERE) :] if file.startswith(_HERE) else file
