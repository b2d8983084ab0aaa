"""Changes that are the user's to decide: they change what is computed, or what is written when.

Each finding of class S becomes a suggestion, with a patch where a careful one can be made of the
line that was found. None is ever applied.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from slipstream.launch import Target
from slipstream.run.cures import CURES
from slipstream.run.diff.calls import call_named, called_name, calls_at, with_keyword
from slipstream.run.diff.source import Edit, NoEdit, Source, edited
from slipstream.run.diff.statements import added_before, wrapped
from slipstream.run.diff.unified import base_of, unified
from slipstream.run.diff.workspace import Workspace
from slipstream.run.outcome import Outcome

_EVERY = 50  # steps
_SEVERAL = ("logging-in-loop", "sync-each-step", "frequent-checkpoint", "frequent-evaluation")


@dataclass(frozen=True)
class Suggestion:
    """One, with the place, what to do and what it would gain. `patch` is empty where the change is
    too large for a patch.
    """

    rule: str
    title: str
    where: str | None
    advice: str
    gain: str
    patch: str = ""


def suggestions(
    report: dict[str, Any], target: Target, folder: Path, cured: frozenset[str] = frozenset()
) -> list[Suggestion]:
    """Of a report of the doctor; without findings that applied fixes (`cured`) have removed."""
    return [
        _suggestion(finding, report, Workspace(target, folder))
        for finding in report["findings"]
        if finding["class"] == "S" and CURES.get(finding["rule"]) not in cured
    ]


def _suggestion(finding: dict[str, Any], report: dict[str, Any], space: Workspace) -> Suggestion:
    try:
        patch = _patch_of(finding, space)
    except NoEdit:
        patch = ""
    title, where, advice = finding["title"], finding["where"], finding["fix"]
    return Suggestion(finding["rule"], title, where, advice, _gain(finding, report), patch)


def print_suggestions(outcome: Outcome, target: Target, folder: Path, console: Console) -> None:
    """Behind the table of a run."""
    if outcome.situation is None:
        return
    applied = frozenset(fix.name for fix in outcome.fixes if fix.state == "applied")
    for suggestion in suggestions(outcome.situation.report, target, folder, applied):
        console.print()
        where = f" {escape(suggestion.where)}" if suggestion.where else ""
        console.print(f"yours to decide: {suggestion.rule}{where}", style="bold")
        console.print(escape(f"{suggestion.title} {suggestion.advice} {suggestion.gain}"))
        if suggestion.patch:
            console.print(escape(suggestion.patch), style="cyan", soft_wrap=True, end="")


def _gain(finding: dict[str, Any], report: dict[str, Any]) -> str:
    gain, step = finding["gain"], report["step_ms"]
    if gain is None or not gain["high_ms"]:
        return "It gains no time."
    low, high = gain["low_ms"], gain["high_ms"]
    range_ms = f"{low:.1f} to {high:.1f}" if low < 0.95 * high else f"{high:.1f}"
    if not low:
        range_ms = f"at most {high:.1f}"
    share = f" ({high / step:.0%})" if step else ""
    return f"Gain, {gain['how']}: {range_ms} ms of a step{share}."


def _patch_of(finding: dict[str, Any], space: Workspace) -> str:
    rule = finding["rule"]
    edits: list[Edit] = []
    if rule in _SEVERAL:
        for where in (finding["where"], *finding["places"]):
            source, line = space.at(where)
            edits.append(_every_some_steps(source, line))
    elif rule in _REWRITERS:
        source, line = space.at(finding["where"])
        edits.append(_REWRITERS[rule](source, line))
    if not edits:
        raise NoEdit("too large for a patch")
    edits = list(dict.fromkeys(edits))
    paths = {edit.path for edit in edits}
    after = {p: edited(space.source(p), [e for e in edits if e.path == p]) for p in paths}
    before = {path: space.source(path).text for path in paths}
    return unified(before, after, base_of(list(paths), space.folder))


def _every_some_steps(source: Source, line: int) -> Edit:
    """A statement whose value nothing uses, in a loop that counts, is done at some of its steps."""
    statement = source.statement(calls_at(source, line, lambda call: True)[0])
    if not isinstance(statement, ast.Expr):
        raise NoEdit("others may use its value")
    for node in _above(source, statement):
        if isinstance(node, ast.If) and any(isinstance(n, ast.Mod) for n in ast.walk(node.test)):
            raise NoEdit("it is done at some steps already")
        if isinstance(node, ast.For):
            counter = _counter(node)
            return wrapped(source, statement, f"if {counter} % {_EVERY} == 0:")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.While):
            break
    raise NoEdit("no loop that counts has it")


def _above(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    above = source.parent(node)
    while above is not None:
        yield above
        above = source.parent(above)


def _counter(loop: ast.For) -> str:
    """The name of the number of a pass through a loop."""
    target = loop.target
    call = loop.iter
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        if call.func.id == "range" and isinstance(target, ast.Name):
            return target.id
        if call.func.id == "enumerate" and isinstance(target, ast.Tuple):
            first = target.elts[0]
            if isinstance(first, ast.Name):
                return first.id
    raise NoEdit("the loop does not count its steps")


def _twice_the_batch(source: Source, line: int) -> Edit:
    call = call_named(source, line, "DataLoader", "Loader")
    sizes = [keyword.value for keyword in call.keywords if keyword.arg == "batch_size"]
    size = next(iter(sizes or call.args[1:2]), None)
    if not isinstance(size, ast.Constant) or not isinstance(size.value, int):
        raise NoEdit("the batch size is computed")
    return Edit(source.path, source.start(size), source.end(size), str(2 * size.value))


def _wait_before_clock(source: Source, line: int) -> Edit:
    names = ("time", "perf_counter", "monotonic", "perf_counter_ns", "time_ns", "monotonic_ns")
    call = calls_at(source, line, lambda call: called_name(call) in names)[0]
    return added_before(source, source.statement(call), "torch.cuda.synchronize()")


def _without_bias(source: Source, line: int) -> Edit:
    edit = with_keyword(
        source, call_named(source, line, "Conv1d", "Conv2d", "Conv3d"), "bias", "False"
    )
    if edit is None:
        raise NoEdit("it has none")
    return edit


def _workers_stay(source: Source, line: int) -> Edit:
    call = call_named(source, line, "DataLoader", "Loader")
    edit = with_keyword(source, call, "persistent_workers", "True")
    if edit is None:
        raise NoEdit("they stay already")
    return edit


_REWRITERS: dict[str, Callable[[Source, int], Edit]] = {
    "small-batch": _twice_the_batch,
    "timer-without-sync": _wait_before_clock,
    "conv-bias-before-norm": _without_bias,
    "slow-worker-start": _workers_stay,
}
