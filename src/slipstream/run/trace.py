"""What a run leaves behind for the one who compares: batches, losses, and when steps ended."""

import dataclasses
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Trace:
    """Plain values of one run, of the same kind for the script as it is and for the fixed one.

    `batches` are digests of the first batches, each with the number of its loader in the order in
    which loaders were first used; `losses` are what the first backward passes began with, as
    `float.hex`; `ends` are seconds at which steps of the optimizer ended, or at which batches were
    asked for where there is no optimizer, or one that sums up the gradients of many; `pages` are
    how many the process had been given by then. `on_device`: losses were made on a GPU.
    """

    batches: list[tuple[int, str]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    ended: str = "script"  # "window", "error", "interrupted"
    exit_code: int = 0
    on_device: bool = False

    def step_seconds(self) -> list[float]:
        """What each step took.

        >>> Trace(ends=[1.0, 3.0, 4.0]).step_seconds()
        [2.0, 1.0]
        """
        return [after - before for before, after in itertools.pairwise(self.ends)]


def save_trace(trace: Trace, path: Path) -> None:
    """As JSON; the file is there when it is whole."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(dataclasses.asdict(trace)))
    unfinished.replace(path)


def load_trace(path: Path) -> Trace:
    """What `save_trace` wrote."""
    return trace_of(json.loads(path.read_text()))


def trace_of(values: dict[str, Any]) -> Trace:
    """From what JSON makes of one."""
    batches = [(int(loader), str(digest)) for loader, digest in values["batches"]]
    return Trace(**{**values, "batches": batches})
