"""Runs a script for some steps in a process that is thrown away, with or without fixes."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipstream.doctor.capture import Capture, load_capture
from slipstream.launch import Target
from slipstream.run.early import read_early
from slipstream.run.ending import ending_in_order
from slipstream.run.memory import keeping, not_keeping
from slipstream.run.orphans import none_left
from slipstream.run.ranks import Ranks
from slipstream.run.sandbox.quiet import quieted
from slipstream.run.sandbox.shared_memory import remove_all
from slipstream.run.terminal import standard_input
from slipstream.run.trace import Trace, load_trace

STEPS = 48
SECONDS = 15.0
_PATIENCE_S = 300.0  # for a script to come to its steps
_GRACE_S = 10.0  # for a process to end when all ranks have what they need, or one has failed
_EVERY_S = 0.1
# The current folder is no place for modules of ours, and of the script only where it has it itself.
START = (
    "import sys; sys.path[:] = filter(None, sys.path); from slipstream.run.child import main; "
    "main()"
)
_numbers = itertools.count()


@dataclass(frozen=True)
class Trial:
    """One that is over. `trace` is None where it never came to an end; `said` is its last output,
    for a message. `over_at` is the time at which it was over by itself; None where we ended it.
    `left` are fixes that left alone all that they came across, and why; `early` are variables that
    the script has set before it loaded torch.
    """

    trace: Trace | None
    capture: Capture | None
    said: str
    over_at: float | None = None
    left: dict[str, str] = field(default_factory=dict)
    early: dict[str, str | None] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether it can be compared with others."""
        return self.trace is not None and self.trace.ended in ("window", "script")

    @property
    def last_words(self) -> str:
        """The last line that it said."""
        return self.said.strip().rpartition("\n")[2] or "it said nothing"


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
    seconds: float | None
    place: str
    waits: bool  # for the file GO before it ends: other ranks may still need it
    parent: int  # a trial that nobody waits for must not go on
    tmpdir: str | None  # of the user


def try_out(
    target: Target, *, seed: int, fixes: Sequence[str] = (), known: Path | None = None,
    shift: int = 0, diagnose: bool = False, steps: int = STEPS, ranks: Ranks | None = None,
) -> Trial:  # fmt: skip
    """The script in a process of its own. `known` is a folder with the diagnosis that fixes need;
    with `diagnose` it makes one. All `ranks` try at the same time, and it is good if all are.
    """
    ranks = ranks or Ranks()
    with ending_in_order(), _thrown_away() as place, none_left():
        spec = Spec(
            target=target, fixes=tuple(fixes), seed=seed, shift=shift, diagnose=diagnose,
            known=None if known is None else str(known), steps=steps,
            # Ranks have to stop at the same step.
            seconds=SECONDS if ranks.world == 1 else None, place=place, waits=ranks.world > 1,
            parent=os.getpid(), tmpdir=os.environ.get("TMPDIR"),
        )  # fmt: skip
        Path(place, "spec.json").write_text(json.dumps(asdict(spec)))
        environment = keeping() if "kept-memory" in fixes else not_keeping()
        # The order of sets of strings is one of the script's random numbers.
        environment.setdefault("PYTHONHASHSEED", str(seed % 2**32))
        child = _Child(Path(place), {**environment, **ranks.environment()}, ranks)
        try:
            said = child.run()
        finally:
            remove_all(Path(place))
        trace, capture = Path(place, "trace.json"), Path(place, "capture.json")
        left = Path(place, "left.json")
        trial = Trial(
            load_trace(trace) if trace.exists() else None,
            load_capture(capture) if capture.exists() else None,
            said,
            child.over_at,
            json.loads(left.read_text()) if left.exists() else {},
            read_early(Path(place)),
        )
    return trial if ranks.world == 1 else _of_all(trial, ranks)


def _thrown_away() -> "tempfile.TemporaryDirectory[str]":
    # What a process still writes that nobody could end is no reason to fail.
    return tempfile.TemporaryDirectory(prefix="slipstream-trial-", ignore_cleanup_errors=True)


def _of_all(trial: Trial, ranks: Ranks) -> Trial:
    """Good if it was good for all ranks; else what the first says that failed by itself."""
    words: list[tuple[bool, float | None, str]] = ranks.all(
        (trial.is_good, trial.over_at, trial.said), _PATIENCE_S + 2 * _GRACE_S
    )
    bad = [(rank, over_at, said) for rank, (is_good, over_at, said) in enumerate(words)
           if not is_good]  # fmt: skip
    if not bad:
        return trial
    # The others waited for it until they were ended, or failed as it was gone.
    own = [(over_at, rank, said) for rank, over_at, said in bad if over_at is not None]
    told = [min(own)[1:]] if own else [(rank, said) for rank, _, said in bad]
    return Trial(
        None, None, "\n".join(_with_rank(rank, said) for rank, said in told), early=trial.early
    )


def _with_rank(rank: int, said: str) -> str:
    """In the last line, which is the one that is quoted."""
    before, _, last = said.strip().rpartition("\n")
    # Torch may have put it there.
    return f"{before}\nrank {rank}: {last.removeprefix(f'[rank{rank}]: ')}"


class _Child:
    """The process, from its start until it and its workers are gone."""

    def __init__(self, place: Path, environment: dict[str, str], ranks: Ranks) -> None:
        self._place, self._ranks = place, ranks
        # Torch's compilers are programs, and see no file of the trial's: in `tmp` they do.
        own = {"TMPDIR": str(place / "tmp"), "TORCHINDUCTOR_CACHE_DIR": str(place / "tmp/compiled")}
        self._environment = {**quieted(environment, place), **own}
        self._word = f"trial-{next(_numbers)}"
        self._ends = self._patience_ends = time.monotonic() + _PATIENCE_S
        self.over_at: float | None = None

    def run(self) -> str:
        """Returns the last of its output."""
        (self._place / "tmp").mkdir()
        output = self._place / "output.txt"
        with output.open("wb") as file, standard_input() as given:
            child = subprocess.Popen(
                [sys.executable, "-c", START, str(self._place / "spec.json")],
                stdin=given, stdout=file, stderr=subprocess.STDOUT,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
            try:
                if self._ranks.world == 1:
                    self._wait(child)
                else:
                    self._wait_with_others(child)
            finally:
                is_late = time.monotonic() >= self._patience_ends
                # Its workers as well; those that left its session come later.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                # oneDNN leaves it for profilers.
                with contextlib.suppress(OSError):
                    Path(f"/tmp/perf-{child.pid}.map").unlink()
        said = output.read_text(errors="replace")[-2000:]
        if is_late and not (self._place / "trace.json").exists():
            said += f"\nnothing came to an end within {_PATIENCE_S:g} s"
        return said

    def _wait(self, child: "subprocess.Popen[Any]") -> None:
        """Until it ends. Threads of the script that never do are not waited for."""
        trace = self._place / "trace.json"
        while child.poll() is None and time.monotonic() < self._ends:
            if trace.exists():
                self._ends = min(self._ends, time.monotonic() + _GRACE_S)
            time.sleep(_EVERY_S)

    def _wait_with_others(self, child: "subprocess.Popen[Any]") -> None:
        """Until all ranks have what they need, or one of them has failed."""
        ranks, others = self._ranks, range(self._ranks.world)
        trace = self._place / "trace.json"
        has_told = False
        while time.monotonic() < self._ends:
            is_over = child.poll() is not None
            if not has_told and (is_over or trace.exists()):
                has_told = True
                self.over_at = time.time()
                ranks.say(f"{self._word}/{'ready' if self._is_good() else 'failed'}")
            if is_over:
                return
            if any(ranks.has_said(rank, f"{self._word}/failed") for rank in others):
                self._ends = min(self._ends, time.monotonic() + _GRACE_S / 5)
            elif all(ranks.has_said(rank, f"{self._word}/ready") for rank in others):
                (self._place / "go").touch()
                self._ends = min(self._ends, time.monotonic() + _GRACE_S)
            time.sleep(_EVERY_S)

    def _is_good(self) -> bool:
        trace = self._place / "trace.json"
        return trace.exists() and load_trace(trace).ended in ("window", "script")
