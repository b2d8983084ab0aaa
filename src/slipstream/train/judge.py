"""One candidate after another: is it the same step, and how fast is it? Whatever goes wrong with
one becomes its row.
"""

import gc
import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import torch

from slipstream.errors import UsageError
from slipstream.infer.changes.compiled import compiled_graphs
from slipstream.infer.keeping import TookTooLong, at_most
from slipstream.train.choices import Choices
from slipstream.train.curve import Run
from slipstream.train.equivalence import equivalence
from slipstream.train.reference import Reference, reference_of
from slipstream.train.row import Row
from slipstream.train.subject import Subject
from slipstream.train.trial import Times, Trial

_log = logging.getLogger("slipstream.train")
_FAR_SLOWER = 2.0
_LEAST_LEFT_S = 2.0
_TURNS_S = (0.5, 8.0)
_PATIENCE = 8


class Judge:
    """Knows the step as written, and the time that is left."""

    def __init__(self, subject: Subject, written: Trial, until: float, budget_s: float) -> None:
        self.subject, self.written, self.until = subject, written, until
        self.turns_s = min(max(budget_s / 30, _TURNS_S[0]), _TURNS_S[1])
        self.trainings: dict[int, list[Run]] = {}  # of the step as written, by their length

    @cached_property
    def reference(self) -> Reference:
        """What is right; computed when it is first asked for."""
        _log.info("gradients in double precision")
        return reference_of(self.subject)

    @property
    def has_compared(self) -> bool:
        """Whether anything was compared with the reference."""
        return "reference" in vars(self)

    @cached_property
    def _own_leak(self) -> int:
        return self.written.leak() or 0

    @property
    def left_s(self) -> float:
        """Seconds."""
        return self.until - time.monotonic()

    def examine(self, row: Row, choices: Choices, base: Trial, share: float) -> Trial | None:
        """Fill a row; a trial comes back if it is the same step. `share` of the time left is all
        that it may take, but always as much as one needs that works. Its speed is beside `base`.
        """
        _log.info(row.name)
        if self.left_s < _LEAST_LEFT_S:
            row.state, row.why = "skipped", "no time was left in the budget"
            return None
        trial: Trial | None = None
        try:
            reference = self.reference  # is no candidate's time
        except UsageError:
            raise
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise UsageError(
                "No memory is left to compute the step once more in double precision, with which "
                f"all is compared: {first_line(error)}. Give smaller batches."
            ) from error
        except Exception as error:
            raise UsageError(
                f"The step as written fails with one of the batches: {first_line(error)}"
            ) from error
        needs_s = 5 * self.turns_s + (30 + 3 * len(reference.moments)) * base.step_s
        try:
            with _quietly(), at_most(max(share * self.left_s, needs_s)):
                trial = Trial(self.subject, choices)
                row.build_s = trial.build_s if choices.compile else None
                if why := self._examine(row, trial, base):
                    row.why = why
        except (Exception, SystemExit, TookTooLong) as error:
            row.state, row.why = "failed", first_line(error)
        if row.state in ("passed", "slower"):
            return trial
        del trial
        self._tidy_up()
        return None

    def _examine(self, row: Row, trial: Trial, base: Trial) -> str | None:
        """What speaks against it."""
        row.ms = 1e3 * trial.step_s
        if (times_slower := trial.times_slower_than(base)) > _FAR_SLOWER:
            row.state = "slower"
            return f"{times_slower:.1f} times slower; nothing was compared"
        row.state = "rejected"
        why = self.is_another(row, trial)
        if why is not None:
            return why
        row.state = "slower"
        graphs = compiled_graphs()
        times = Times({"base": base, "this": trial}, self.turns_s)
        found = times.speed("this")
        is_open = found.low <= times.least < found.value
        if is_open and self.left_s > _PATIENCE * self.turns_s:
            times.more(2 * self.turns_s)  # once, and then it counts as it is
        row.speed, row.base_ms = times.speed("this"), 1e3 * times.step_s("base")
        row.ms = 1e3 * times.step_s("this")
        row.samples_per_s = self.samples_per_s(times.step_s("this"))
        if compiled_graphs() != graphs:
            row.state = "rejected"
            return "was compiled again while it was timed"
        peak = trial.peak()
        row.peak_mb, row.headroom = peak.mb, peak.headroom
        if row.speed.low <= times.least:
            return f"not surely faster: {row.speed}, more than {times.least:.2f} x is needed"
        gain_s = times.step_s("base") - times.step_s("this")
        row.state = "passed"
        if row.build_s:
            row.break_even_steps = round(row.build_s / gain_s)
            steps = f"{row.break_even_steps:,} steps"
            row.why = joined(row.why, f"{row.build_s:.0f} s to get ready pay off after {steps}")
        return self._leaks(row, trial)

    def is_another(self, row: Row, trial: Trial) -> str | None:
        """Why it is not the same step. Random numbers of compiled code are its own; it is compared
        with torch's, and a row says so.
        """
        if not (trial.choices.compile and self.reference.draws):
            why, error = equivalence(trial.step, self.reference)
        else:
            import torch._inductor.config

            with torch._inductor.config.patch(fallback_random=True):
                twin = self.subject.build(trial.choices)
                why, error = equivalence(twin, self.reference)
            row.why = "its random numbers are others; gradients were compared with torch's own"
        row.error, row.cosine = error.share, error.cosine
        trial.start.restore()
        return why

    def samples_per_s(self, step_s: float) -> float | None:
        """None where it is not known how many are in a batch."""
        return self.subject.samples / step_s if self.subject.samples else None

    def _leaks(self, row: Row, trial: Trial) -> str | None:
        leak = trial.leak()
        if leak is None or leak <= 2 * self._own_leak:
            return None
        row.state = "failed"
        return f"every step keeps {leak / 1e6:.1f} MB of memory more"

    def _tidy_up(self) -> None:
        gc.collect()
        if self.subject.device.type == "cuda":
            torch.cuda.empty_cache()


@contextmanager
def _quietly() -> Iterator[None]:
    """Without warnings of compilers and of precisions, which are about the candidate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def joined(*said: str) -> str:
    """What there is to say, in one line."""
    return "; ".join(one for one in said if one)


def first_line(error: BaseException) -> str:
    """Of what an error says, with its class. What a compiler wraps is looked for inside."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, TookTooLong):
            return str(inner)
        inner = inner.__cause__ or inner.__context__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    return f"{type(error).__name__}: {said[:200]}" if said else type(error).__name__
