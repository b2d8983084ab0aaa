"""The doctor from code: for notebooks, and for loops that are no scripts."""

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from slipstream.doctor.capture import Capture
from slipstream.doctor.report import make_report
from slipstream.errors import UsageError

_STEPS = 100
_SECONDS = 60.0


class Diagnosis:
    """What was found. `print` shows it as `slipstream doctor` does, `save` writes the page, and
    `report` is the plain value.

    >>> import tempfile, torch
    >>> found = diagnose(lambda: list(torch.utils.data.DataLoader(torch.randn(64, 4), 8)))
    >>> print(found.verdict)  # doctest: +ELLIPSIS
    A step takes ...
    >>> found.save(f"{tempfile.mkdtemp()}/report.html")
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.report: dict[str, Any] = make_report(capture)
        self._page: str | None = None

    @property
    def verdict(self) -> str:
        """One sentence."""
        return str(self.report["verdict"])

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The dearest first."""
        return list(self.report["findings"])

    def save(
        self,
        html: "str | os.PathLike[str] | None" = "report.html",
        json: "str | os.PathLike[str] | None" = None,
    ) -> None:
        """Write the page that `slipstream doctor` writes, and the report as JSON, for
        `slipstream compare`, where a name is given. None: not that one.
        """
        if html is not None:
            from slipstream.doctor.html import write_page
            from slipstream.doctor.page import page_of

            write_page(page_of(self.capture, self.report), Path(html))
            self._page = str(html)
        if json is not None:
            from json import dumps

            Path(json).write_text(dumps(self.report, indent=1) + "\n", encoding="utf-8")

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        from slipstream.doctor.text import print_report

        out = StringIO()
        # Text as it is, wherever it is printed and whatever FORCE_COLOR says.
        console = Console(
            file=out, width=80, highlight=False, force_jupyter=False, color_system=None
        )
        print_report(self.report, console, page=self._page)
        return out.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        return f"Diagnosis({self.verdict!r}, {len(self.findings)} findings)"


class diagnose:
    """Find out what is slow in a training loop, run here and now.

    With a callable it is run, and stopped after `steps` or `seconds`; the result has `verdict`,
    `findings` and `report`. Without one it is a context manager around the loop, which runs as it
    is, and `diagnosis` has the result behind it.

    >>> import torch
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), 0.1)
    >>> with diagnose() as watched:
    ...     for batch in torch.utils.data.DataLoader(torch.randn(64, 4), 8):
    ...         optimizer.zero_grad()
    ...         model(batch).sum().backward()
    ...         optimizer.step()
    >>> sorted(watched.diagnosis.report["parts"])[:2]
    ['backward', 'forward']
    """

    def __new__(  # type: ignore[misc]
        cls,
        function: Callable[[], object] | None = None,
        *,
        steps: int | None = None,
        seconds: float | None = None,
    ) -> "diagnose | Diagnosis":
        """A `Diagnosis` of the callable, or the context manager."""
        if function is None:
            return super().__new__(cls)
        if not callable(function):
            raise UsageError(f"Give a function to run, got {type(function).__name__}.")
        if steps is None and seconds is None:
            steps, seconds = _STEPS, _SECONDS
        from slipstream.doctor.record.session import Session
        from slipstream.launch import WindowEnded

        name = getattr(function, "__qualname__", type(function).__name__)
        session = Session(name, steps=steps, seconds=seconds)
        session.start()
        ended = "error"
        try:
            function()
            ended = "window" if session.has_ended else "script"
        except WindowEnded:
            ended = "window"
        finally:
            capture = session.stop(ended)
        return Diagnosis(capture)

    def __init__(self) -> None:
        self._diagnosis: Diagnosis | None = None

    @property
    def diagnosis(self) -> Diagnosis:
        """The result; behind the `with` block."""
        if self._diagnosis is None:
            raise UsageError("There is a diagnosis behind the with block, not inside it.")
        return self._diagnosis

    def __enter__(self) -> "diagnose":
        from slipstream.doctor.record.session import Session

        self._session = Session("notebook", steps=None, seconds=None)
        self._session.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        self._diagnosis = Diagnosis(self._session.stop("error" if error else "script"))
        return False
