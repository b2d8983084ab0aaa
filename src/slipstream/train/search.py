"""The search: one switch after another on what was kept so far, for as long as there is time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from slipstream.infer.keeping import TookTooLong, at_most
from slipstream.timing import Ratio
from slipstream.train.curve import Curve
from slipstream.train.judge import Judge, first_line, joined
from slipstream.train.micro_batch import Point, knee_of, sizes_of
from slipstream.train.notes import notes_of
from slipstream.train.recipe import Recipe
from slipstream.train.row import Row, State
from slipstream.train.subject import Subject
from slipstream.train.switches import KINDS, SWITCHES, Kind, Switch
from slipstream.train.training import training_of
from slipstream.train.trial import Times, Trial

_SWITCHES = 0.65  # of the budget; the rest is for the last comparison and a short training
_TIME = 0.3  # of what is left, for one of several sizes


class Search:
    """Rows so far, and the best step so far."""

    def __init__(self, subject: Subject, written: Trial, budget_s: float, admitted: Kind) -> None:
        self._subject, self._written, self._admitted = subject, written, admitted
        now = time.monotonic()
        self._until = now + budget_s
        self._judge = Judge(subject, written, now + _SWITCHES * budget_s, budget_s)
        self._best = written
        self._speed = Ratio(1.0, 1.0, 1.0)  # of the best, beside the step as written
        self._curve: Curve | None = None  # of the best
        self.rows = [Row("as written", "exact", "step", "the step as it is")]
        self.rows[0].ms = 1e3 * written.step_s
        self.rows[0].samples_per_s = self._judge.samples_per_s(written.step_s)

    def run(self, only: Sequence[str] | None, *, sizes: bool) -> Recipe:
        """Try the switches, or `only` some, and with `sizes` those of micro-batches."""
        for switch in SWITCHES:
            if only is None or switch.name in only:
                self._try(switch, is_asked=only is not None)
        self._compare_all()
        self._judge.until = self._until
        if sizes:
            self._choose_size()
        self._train()
        self.rows[0].peak_mb = self._written.peak().mb
        return Recipe(
            self._best.choices, self._subject.written, tuple(self.rows), self._speed, self._curve,
            tuple(self._notes()), self._subject.device.type,
        )  # fmt: skip

    def _notes(self) -> Iterator[str]:
        if self._best is self._written:
            yield "Nothing is surely faster than the step as written, which stays."
        else:
            yield f"{self._best.choices.name}: {self._speed} as fast as the step as written."
        if self._curve is not None:
            yield f"Training: {self._curve.verdict}; {self._curve.why}."
        yield from notes_of(self._judge)

    def _try(self, switch: Switch, *, is_asked: bool) -> None:
        row = Row(switch.name, switch.kind, "skipped")
        self.rows.append(row)
        why = switch.why_not(self._subject, self._best.choices)
        if why is None and not is_asked:
            why = switch.why_hardly(self._subject)
        if why is not None:
            row.why = why
            return
        choices = switch.choose(self._best.choices)
        trial = self._judge.examine(row, choices, self._best, switch.share)
        if trial is None or row.state != "passed":
            return
        if KINDS.index(switch.kind) > KINDS.index(self._admitted):
            row.why = f"not admitted: accuracy={switch.kind!r} would"
            return
        row.state = "kept"
        self._best = trial
        for other in SWITCHES:
            for earlier in self.rows:
                is_kept = earlier.name == other.name and earlier.state == "kept"
                if is_kept and other.choose(choices) != choices:
                    earlier.state, earlier.why = "passed", f"{row.name} is faster still"

    def _compare_all(self) -> None:
        """All that was kept, beside the step as written; it has to be faster once more."""
        if self._best is self._written:
            return
        kept = [row for row in self.rows if row.state == "kept"]
        if len(kept) == 1:
            row = kept[0]
        else:
            kind: Kind = "exact" if self._best.choices.precision is None else "mixed"
            row = Row(self._best.choices.name, kind, "won")
            self.rows.append(row)
        turns_s = 2 * self._judge.turns_s
        needs_s = 5 * turns_s + 30 * self._written.step_s
        try:
            with at_most(max(self._until - time.monotonic(), needs_s)):
                times = Times({"written": self._written, "all": self._best}, turns_s)
        # By a loss that diverges in more steps than it was tried for, say.
        except (Exception, TookTooLong) as error:
            self._fall_back(f"timed beside the step as written: {first_line(error)}", "failed")
            return
        row.speed, row.base_ms = times.speed("all"), 1e3 * times.step_s("written")
        row.ms = 1e3 * times.step_s("all")
        row.samples_per_s = self._judge.samples_per_s(times.step_s("all"))
        self.rows[0].ms = 1e3 * times.step_s("written")
        self.rows[0].samples_per_s = self._judge.samples_per_s(times.step_s("written"))
        if row.speed.low > times.least:
            self._speed = row.speed
            row.state = "won"
            row.why = joined(f"beside the step as written: {row.speed}", row.why)
        else:
            self._fall_back(f"not surely faster than the step as written: {row.speed}")

    def _choose_size(self) -> None:
        whole = self._subject.samples
        if self._subject.has_batch_norm:
            why = "batch norms see micro-batches: other statistics, so it is another training"
            self.rows.append(Row("micro-batches", "exact", "rejected", why))
            return
        if self._judge.reference.draws:
            why = "the step draws random numbers, others for micro-batches: it cannot be compared"
            self.rows.append(Row("micro-batches", "exact", "rejected", why))
            return
        peak, rate = self._best.peak(), whole / self._best.step_s
        points = [Point(whole, rate, peak.headroom)]
        tried: dict[int, Row] = {}
        for size in sizes_of(whole)[1:]:
            row = tried[size] = Row(f"micro-batch {size}", "exact", "skipped")
            self.rows.append(row)
            choices = replace(self._best.choices, micro_batch=size)
            if any(one.state == "slower" and one.speed is None for one in tried.values()):
                row.why = "a larger one is far slower already"
                continue
            self._judge.examine(row, choices, self._best, _TIME)
            if row.state in ("passed", "slower") and row.speed is not None:
                points.append(Point(size, rate * row.speed.value, row.headroom))
        chosen, why = knee_of(points)
        for size, row in tried.items():
            if row.state == "passed" and size != chosen.size:
                row.why = f"{chosen.size} is the knee"
        if chosen.size != whole:
            row = tried[chosen.size]
            row.state, row.why = "kept", why
            choices = replace(self._best.choices, micro_batch=chosen.size)
            self._best = Trial(self._subject, choices)
            times = Times({"written": self._written, "all": self._best}, self._judge.turns_s)
            self._speed = times.speed("all")

    def _train(self) -> None:
        """A short training with what was found; without what has fewer bits, if it fails."""
        if self._best is self._written:
            return
        self._curve = training_of(self._judge, self._best)
        if self._is_shown(self._best, self._curve):
            return
        choices = replace(self._best.choices, precision=None)
        had_fewer_bits = choices != self._best.choices
        is_other = self._curve.verdict == "different"
        why = f"training with it: {self._curve.why}"
        self._fall_back(why, "rejected" if is_other else "passed")
        if not had_fewer_bits or choices == self._subject.written:
            return
        row = Row(choices.name, "exact", "skipped")
        self.rows.append(row)
        trial = self._judge.examine(row, choices, self._written, 1.0)
        if trial is None or row.state != "passed" or row.speed is None:
            return
        curve = training_of(self._judge, trial)
        if not self._is_shown(trial, curve):
            row.state, row.why = "rejected", f"training with it: {curve.why}"
            return
        row.state, row.why = "won", "what is left without fewer bits"
        self._best, self._curve, self._speed = trial, curve, row.speed

    def _is_shown(self, trial: Trial, curve: Curve) -> bool:
        """Gradients speak for an exact step where a training shows nothing; fewer bits have to
        be seen in training.
        """
        if curve.verdict == "not shown":
            return trial.choices.precision is None
        return curve.verdict == "equivalent"

    def _fall_back(self, why: str, state: State = "slower") -> None:
        for row in self.rows:
            if row.state in ("kept", "won"):
                row.state, row.why = state, why
        self._best, self._speed = self._written, Ratio(1.0, 1.0, 1.0)
