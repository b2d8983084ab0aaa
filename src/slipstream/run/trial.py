"""Runs a script for some steps in a process that is thrown away, with or without fixes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from slipstream.doctor.capture import Capture, load_capture
from slipstream.launch import Target
from slipstream.run.memory import keeping, not_keeping
from slipstream.run.sandbox import QUIET
from slipstream.run.trace import Trace, load_trace

_STEPS = 48
_SECONDS = 15.0
_PATIENCE_S = 300.0  # for a script to come to its steps


@dataclass(frozen=True)
class Trial:
    """One that is over. `trace` is None where it never came to an end; `said` is its last output,
    for a message.
    """

    trace: Trace | None
    capture: Capture | None
    said: str

    @property
    def is_good(self) -> bool:
        """Whether it can be compared with others."""
        return self.trace is not None and self.trace.ended in ("window", "script")


@dataclass(frozen=True)
class Spec:
    """What the process is to do."""

    target: Target
    fixes: tuple[str, ...]
    known: str | None  # where the diagnosis lies that fixes look at
    seed: int
    shift: int  # to the seeds that the script sets itself
    diagnose: bool
    steps: int
    seconds: float
    place: str


def try_out(
    target: Target, *, seed: int, fixes: Sequence[str] = (), known: Path | None = None,
    shift: int = 0, diagnose: bool = False, steps: int = _STEPS, seconds: float = _SECONDS,
) -> Trial:  # fmt: skip
    """The script in a process of its own. `known` is a folder with the diagnosis that fixes need;
    with `diagnose` it makes one.
    """
    with tempfile.TemporaryDirectory(prefix="slipstream-trial-") as place:
        spec = Spec(
            target=target, fixes=tuple(fixes), seed=seed, shift=shift, diagnose=diagnose,
            known=None if known is None else str(known), steps=steps, seconds=seconds, place=place,
        )  # fmt: skip
        file = Path(place, "spec.json")
        file.write_text(json.dumps(asdict(spec)))
        environment = keeping() if "kept-memory" in fixes else not_keeping()
        said = _run_child(file, Path(place, "output.txt"), environment)
        trace, capture = Path(place, "trace.json"), Path(place, "capture.json")
        return Trial(
            load_trace(trace) if trace.exists() else None,
            load_capture(capture) if capture.exists() else None,
            said,
        )


def _run_child(spec: Path, output: Path, environment: dict[str, str]) -> str:
    temporary = spec.parent / "tmp"
    temporary.mkdir()
    with output.open("wb") as file:
        child = subprocess.Popen(
            [sys.executable, "-m", "slipstream.run.child", str(spec)],
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            env={**environment, **QUIET, "TMPDIR": str(temporary)}, start_new_session=True,
        )  # fmt: skip
        try:
            child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Its workers as well, if it left any.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return output.read_text(errors="replace")[-2000:]
