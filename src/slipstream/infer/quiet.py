"""Exporters write about the model to the terminal; what matters is raised as well."""

import contextlib
import logging
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

_TALKATIVE = (
    "onnx_ir", "onnxscript", "torch._dynamo", "torch._export", "torch.export", "torch.fx",
    "torch.onnx",
)  # fmt: skip


_lock = threading.Lock()
_inside: Counter[int] = Counter()  # how often each thread is in a quiet block
_hushed = contextlib.ExitStack()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Warnings, log lines and what this thread prints are not seen. Threads may overlap: the last
    one puts everything back.
    """
    own = threading.get_ident()
    with _lock:
        if not _inside:
            _hush(_hushed)
        _inside[own] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[own] -= 1
            if not _inside[own]:
                del _inside[own]
            if not _inside:
                _hushed.close()


def _hush(stack: contextlib.ExitStack) -> None:
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    stack.enter_context(contextlib.redirect_stdout(cast(Any, _Except(sys.stdout))))
    stack.enter_context(contextlib.redirect_stderr(cast(Any, _Except(sys.stderr))))
    for name in _TALKATIVE:
        logger = logging.getLogger(name)
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)


class _Except:
    """A stream that takes nothing from threads that are to be silent."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """To the stream, for all others."""
        if threading.get_ident() in _inside:
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def first_line(error: BaseException) -> str:
    """What an error says, without the pages that may follow.

    >>> first_line(ValueError("no such axis\\n  in node 7"))
    'ValueError: no such axis'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
