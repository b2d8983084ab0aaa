"""Tracebacks as they would be without us: frames that only pass a call on are left out."""

import linecache
import re
from itertools import groupby, zip_longest
from pathlib import Path
from types import CodeType, TracebackType

_HERE = Path(__file__).resolve().parent
_HOOKS = tuple(f"{_HERE / name}/" for name in ("doctor", "run", "cli"))
_FILES = tuple(str(_HERE / name) for name in ("launch.py", "patches.py", "__main__.py"))
_CALLED = re.compile(r"(\w+)\(")


def hide_own_frames(error: BaseException) -> None:
    """Take them out of an error's traceback, and of those that led to it. Frames in which we failed
    ourselves stay.
    """
    seen: set[int] = set()
    found = [error]
    while found:
        each = found.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = _without_ours(each.__traceback__)
        found += [led for led in (each.__cause__, each.__context__) if led is not None]
        found += getattr(each, "exceptions", ())


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept: list[TracebackType] = []
    runs = [(ours, list(run)) for ours, run in groupby(frames, _is_ours)]
    for (ours, run), (_, inner) in zip_longest(runs, runs[1:], fillvalue=(False, [])):
        if not ours or not _passes_on(run[-1], inner[0] if inner else None):
            kept += run
    linked: TracebackType | None = None
    for each in reversed(kept):
        linked = TracebackType(linked, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return linked


def _is_ours(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return file.startswith(_HOOKS) or file in _FILES


def _passes_on(trace: TracebackType, inner: TracebackType | None) -> bool:
    """Whether the frame has called what it was given: code, or a function by the name that it has
    here. Without an `inner` frame that was a function without frames, in C.
    """
    given = trace.tb_frame.f_locals
    if inner is not None and any(
        isinstance(value, CodeType) and value is inner.tb_frame.f_code for value in given.values()
    ):
        return True
    line = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return any(callable(given.get(name)) for name in _CALLED.findall(line))
