"""The search: stage by stage, each on the best of the one before, for as long as there is time."""

import itertools
import logging
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from slipstream.infer import known
from slipstream.infer.change import ENGINE, KINDS, Change, Kind, Variant
from slipstream.infer.changes.around import thread_counts, threads
from slipstream.infer.changes.compiled import compiled_graphs
from slipstream.infer.gates.contract import contract
from slipstream.infer.gates.elsewhere import elsewhere
from slipstream.infer.gates.metric import Metric, drop_of, is_worse, judge, scores_of
from slipstream.infer.gates.numeric import numeric
from slipstream.infer.gates.reference import Reference, ask, undefined_in
from slipstream.infer.keeping import TookTooLong, at_most, everything_as_before
from slipstream.infer.memory import kept_by_calls, used_mb
from slipstream.infer.optimized import INFERENCE_MODE
from slipstream.infer.quiet import first_line, quietly
from slipstream.infer.row import Row
from slipstream.infer.subject import Subject
from slipstream.memory import peak_of
from slipstream.tf32 import tf32_words
from slipstream.timing import Ratio, least_gain, ratio_of, time_in_turns

_log = logging.getLogger("slipstream.infer")
_SCREEN_S = 0.6
_NEAR = 1.3  # times the fastest: still a finalist
_HOPELESS = 5.0  # times slower than the model
_MOST_FINALISTS = 5
_FINAL_S, _FINAL_SHARE = 8.0, 0.2  # of a budget
_ALONE_S = 0.5  # for the model itself
_LEAST_LEFT_S = 5.0
# Of the time that is left then: who admits fewer bits wants them to be tried.
_FOR_COMPILERS: dict[Kind, float] = {"exact": 1.0, "mixed": 0.6, "lossy": 0.5}

_WON: dict[Kind, str] = {
    "exact": "the fastest with the same answers",
    "mixed": "the fastest with the same answers in fewer bits",
    "lossy": "the fastest that does the task as well",
}


_LEFT_OUT = "left out, as asked for"
_NO_TASK = "only a task can tell whether coarser numbers do: give metric and data"


@dataclass
class Task:
    """The measure of what the model is for. `scores` are those of the model itself."""

    metric: Metric
    data: Sequence[Any]
    max_drop: float
    scores: list[float] = field(default_factory=list)


@dataclass
class Search:
    """Rows so far, and what was built for those that may still win. `until` is when a budget of
    `budget_s` is spent.
    """

    subject: Subject
    reference: Reference
    until: float
    admitted: Kind
    task: Task | None = None
    without: frozenset[str] = frozenset()
    budget_s: float = math.inf
    rows: dict[str, Row] = field(default_factory=dict)
    variants: dict[str, Variant] = field(default_factory=dict)
    built: dict[str, torch.nn.Module] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The last round has its share."""
        self._final_s = min(_FINAL_S, _FINAL_SHARE * self.budget_s)
        self.until -= self._final_s

    def run(self) -> tuple[Variant, torch.nn.Module | None]:
        """The fastest variant that passed with its model; None for the model as it is."""
        tf32 = f"; {tf32_words()}" if self.subject.device.type == "cuda" else ""
        own = f"; {found}" if (found := undefined_in(self.reference)) else ""
        self.rows["eager"] = Row("eager", "exact", "model", f"without gradients{tf32}{own}")
        layouts = self._stage([Variant().plus(change) for change in known.LAYOUTS])
        if len(layouts) > 1:
            layouts += self._stage([layouts[0].plus(layouts[1].changes[0])])
        plain = [*layouts, Variant()]
        base = self._best(plain)
        self._stage([Variant()] if not base.changes else [])
        around = self._stage([base.plus(change) for change in known.LIBRARIES])
        base = self._best([base, *around])
        around = self._stage([base.plus(threads(count)) for count in thread_counts()])
        base = self._best([base, *around])
        engines = self._stage([base.plus(change) for change in known.QUICK])
        if self.admitted != "exact":
            self._with_fewer_bits(base, engines, known.QUICKLY_QUANTIZED)
        whole, now = self.until, time.monotonic()
        self.until = now + _FOR_COMPILERS[self.admitted] * max(0.0, whole - now)
        engines += self._stage([base.plus(change) for change in known.COMPILED])
        engines += self._again(engines, plain)
        self.until = whole
        self._with_fewer_bits(base, engines, (*known.QUICKLY_QUANTIZED, *known.QUANTIZED))
        return self._finish()

    def _with_fewer_bits(
        self, base: Variant, engines: list[Variant], quantized: Sequence[Change]
    ) -> None:
        """On the best so far, which is another one the second time."""
        tried = sorted([base, *engines], key=self._ms)
        for change in known.PRECISIONS:
            if self._try(base.plus(change)).state != "slower":
                self._stage(_on_the_best(tried, change))
        for change in quantized:
            if self.task is not None:
                self._stage(_on_the_best(tried, change))
            else:
                why = self._why_no_coarser(change)
                self.rows[change.name] = Row(change.name, change.kind, "skipped", why)

    def _why_no_coarser(self, change: Change) -> str:
        """Without a task: what would speak against it with one."""
        if change.name in self.without:
            return _LEFT_OUT
        with_data = replace(self.subject, calibration=(self.subject.inputs,))
        return change.why_not(with_data) or _NO_TASK

    def _again(self, engines: list[Variant], layouts: list[Variant]) -> list[Variant]:
        """The best engine on the layouts that were not the best without it."""
        if not engines:
            return []
        engine = next(one for one in self._best(engines).changes if one.place == ENGINE)
        return self._stage([layout.plus(engine) for layout in layouts])

    def _stage(self, variants: list[Variant]) -> list[Variant]:
        """Those that passed."""
        return [one for one in variants if self._try(one).state == "passed"]

    def _best(self, variants: list[Variant]) -> Variant:
        return min(variants, key=self._ms)

    def _ms(self, variant: Variant) -> float:
        row = self.rows.get(variant.name)
        if row is None or row.state != "passed" or row.speed is None:
            return 1.0 if not variant.changes else float("inf")
        return 1 / row.speed.value

    def _try(self, variant: Variant) -> Row:
        # Without changes it is the model in inference mode.
        name = variant.name if variant.changes else INFERENCE_MODE
        if name in self.rows:
            return self.rows[name]
        _log.info(name)
        row = self.rows[name] = Row(name, variant.kind, "skipped", added=variant.added)
        self.variants[name] = variant
        if name in self.without or any(c.name in self.without for c in variant.changes):
            row.why = _LEFT_OUT
        elif why := variant.why_not(self.subject):
            row.why = why
        elif (left := self.until - time.monotonic()) < _LEAST_LEFT_S:
            row.why = "no time was left in the budget"
        else:
            # Exporters leave flags behind that would change what is measured after them.
            with quietly(), everything_as_before(self.subject.model):
                self._measure(row, variant, left)
        return row

    def _measure(self, row: Row, variant: Variant, left: float) -> None:
        start = time.perf_counter()
        try:
            with at_most(left):
                model = variant.build(self.subject)
                ask(model, self.subject.inputs)
                row.build_s = time.perf_counter() - start
                row.state, row.why = "rejected", ""
                why = self._far_behind(row, model) or contract(model, self.reference)
                if why is None:
                    why, error = numeric(model, self.reference, variant.kind)
                    row.error, row.agreement = error.rms, error.agreement
                if why is None and variant.kind == "exact":
                    why = elsewhere(model, self.reference)
                if why is None and self.task is not None:
                    why = self._judge_task(model, row)
                if why is None:
                    why = self._screen(row, model)
        except TookTooLong as error:
            row.state, why = "failed", str(error)
        except (Exception, SystemExit) as error:
            row.state, why = "failed", first_line(error)
        if why is not None:
            row.why = why
            return
        row.state = "passed"
        self._keep(row, model)

    def _far_behind(self, row: Row, model: torch.nn.Module) -> str | None:
        """A call or two tell where a variant takes many times as long; the rest is not worth it."""
        seconds = {}
        wait = self.subject.wait() or (lambda: None)
        for name, each in (("model", self.subject.model), ("variant", model)):
            call = self._call(each)
            call()
            wait()
            start = time.perf_counter()
            call()
            wait()
            seconds[name] = time.perf_counter() - start
        times = seconds["variant"] / seconds["model"]
        if times < _HOPELESS or seconds["variant"] < _SCREEN_S / 4:
            return None
        row.state, row.ms = "slower", 1e3 * seconds["variant"]
        row.speed = Ratio(*[round(1 / times, 4)] * 3)
        return f"a call takes {times:,.0f} times as long as that of the model"

    def _judge_task(self, model: torch.nn.Module, row: Row) -> str | None:
        assert self.task is not None
        if not self.task.scores:
            self.task.scores = scores_of(self.subject.model, self.task.metric, self.task.data)
        drop = drop_of(self.task.scores, scores_of(model, self.task.metric, self.task.data))
        row.drop = str(drop)
        # Proved by its numbers: only what surely is worse speaks against it.
        if row.kind == "exact":
            return is_worse(drop, self.task.max_drop)
        return judge(drop, self.task.max_drop)

    def _screen(self, row: Row, model: torch.nn.Module) -> str | None:
        compiled = compiled_graphs()
        device = self.subject.device
        counted, count = _counting(self._call(model))
        before = used_mb(device)
        calls = {"model": self._call(self.subject.model), "variant": counted}
        taken = self._in_turns(calls, _SCREEN_S)
        grown = used_mb(device) - before
        row.speed = ratio_of(taken["model"], taken["variant"])
        row.ms = 1e3 * statistics.median(taken["variant"])
        if compiled_graphs() != compiled:
            return "was compiled again while it was timed"
        row.peak_mb = peak_of(counted, device).mb
        return kept_by_calls(counted, count(), grown, device)

    def _in_turns(
        self, calls: dict[str, Callable[[], object]], seconds: float
    ) -> dict[str, list[float]]:
        wait = self.subject.wait()
        return time_in_turns(calls, seconds=seconds, wait=wait, is_settled=wait is None)

    def _call(self, model: Any) -> Callable[[], object]:
        """Calls with inputs that take turns, so that none is the one that is in a cache."""
        given = self.subject.inputs
        inputs = [answer.inputs.copy_shared_as(given) for answer in self.reference.answers]
        turn = itertools.count()

        def call() -> object:
            with torch.no_grad():
                return inputs[next(turn) % len(inputs)](model)

        return call

    def _keep(self, row: Row, model: torch.nn.Module) -> None:
        """What may win. The rest is let go of: each is a copy of the model."""
        if KINDS.index(row.kind) > KINDS.index(self.admitted):
            return
        self.built[row.name] = model
        # By what is sure: on a busy machine one looks far faster than it is.
        best = max(self._least_speed(name) for name in self.built)
        for name in [name for name in self.built if self._speed(name) * _NEAR < best]:
            del self.built[name]

    def _speed(self, name: str) -> float:
        speed = self.rows[name].speed
        return speed.value if speed else 0.0

    def _least_speed(self, name: str) -> float:
        speed = self.rows[name].speed
        return speed.low if speed else 0.0

    def _finish(self) -> tuple[Variant, torch.nn.Module | None]:
        """All that may be the fastest, in turns with the model itself, twice: what differs between
        these two is noise.
        """
        names = sorted(self.built, key=self._least_speed, reverse=True)[:_MOST_FINALISTS]
        own = {"model": self._call(self.subject.model), "again": self._call(self.subject.model)}
        failed: dict[str, str] = {}
        calls = own | {name: _noting(name, self._call(self.built[name]), failed) for name in names}
        _log.info("the fastest of them, in turns")
        with quietly():
            taken = self._in_turns(calls, self._final_s if names else _ALONE_S)
        for name, why in failed.items():
            self.rows[name].state, self.rows[name].why = "failed", f"in the last round: {why}"
            names.remove(name)
        noise = ratio_of(taken["model"], taken["again"])
        least = least_gain(noise)
        for name in names:
            row = self.rows[name]
            row.speed = ratio_of(taken["model"], taken[name])
            gain_s = statistics.median(taken["model"]) - statistics.median(taken[name])
            if gain_s > 0 and row.build_s:
                row.break_even_calls = round(row.build_s / gain_s)
        own_ms = self.rows["eager"].ms = 1e3 * statistics.median(taken["model"])
        for row in self.rows.values():
            if row.speed is not None:  # what it would take now: some were timed minutes ago
                row.ms = own_ms / row.speed.value
        self.rows["eager"].speed = Ratio(1.0, min(1.0, noise.low), max(1.0, noise.high))
        won = self._winner(names, least)
        self._say_why(won, least, names)
        if won is None:
            return Variant(), None
        return self.variants[won], self.built[won]

    def _winner(self, names: list[str], least: float) -> str | None:
        sure = [name for name in names if (speed := self.rows[name].speed) and speed.low > least]
        return max(sure, key=self._speed, default=None)

    def _say_why(self, won: str | None, least: float, finalists: list[str]) -> None:
        best = self._speed(won) if won else 1.0
        for name, row in self.rows.items():
            if row.state != "passed":
                continue
            if name == won:
                row.state = "won"
                row.why = _WON[row.kind]
            elif KINDS.index(row.kind) > KINDS.index(self.admitted):
                row.why = f"not admitted: accuracy={row.kind!r} would"
            elif name not in finalists and row.speed is not None and row.speed.low > least:
                row.why = "faster than the model, and not among the fastest"
                if won is None:
                    row.state, row.why = "slower", "looked faster; no better one proved to be"
            elif row.speed is not None and row.speed.low > least:
                row.why = f"{best / row.speed.value:.2f} times as long as the fastest"
            else:
                row.state, row.why = "slower", f"more than {least:.2f} x is needed"


def _on_the_best(variants: list[Variant], change: Change) -> list[Variant]:
    """A change on the two fastest that it builds on and that take it."""
    fits = [one for one in variants if set(one.changes) <= set(one.plus(change).changes)]
    return [one.plus(change) for one in fits[:2] or [Variant()]]


def _noting(name: str, call: Callable[[], object], failed: dict[str, str]) -> Callable[[], object]:
    """A call that is made no more once it has failed, which is noted."""

    def noted() -> object:
        if name in failed:
            return None
        try:
            return call()
        except Exception as error:
            failed[name] = first_line(error)
            return None

    return noted


def _counting(call: Callable[[], object]) -> tuple[Callable[[], object], Callable[[], int]]:
    count = itertools.count()

    def counted() -> object:
        next(count)
        return call()

    return counted, lambda: next(count)
