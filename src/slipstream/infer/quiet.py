"""Exporters write about the model to the terminal; what matters is raised as well."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

_TALKATIVE = (
    "onnx_ir", "onnxscript", "torch._dynamo", "torch._export", "torch.export", "torch.fx",
    "torch.onnx",
)  # fmt: skip


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Warnings, log lines and what is printed are not seen; levels of loggers are put back."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in loggers]
    out = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def first_line(error: BaseException) -> str:
    """What an error says, without the pages that may follow.

    >>> first_line(ValueError("no such axis\\n  in node 7"))
    'ValueError: no such axis'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
