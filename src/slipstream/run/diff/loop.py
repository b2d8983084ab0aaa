"""Fixes that are a change of single calls in the loop."""

import ast
import re
from types import CodeType
from typing import Any

from slipstream.doctor.attribute import attribute
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.eval_with_grad import wasted_passes
from slipstream.doctor.rules.passes import facts_of
from slipstream.doctor.rules.too_few_workers import wanted_workers
from slipstream.run.diff.calls import call_named, called_name, calls_at, with_keyword
from slipstream.run.diff.direction import check_direction
from slipstream.run.diff.head import TopLine, imports_at_top
from slipstream.run.diff.scope import names_of
from slipstream.run.diff.sent import check_source
from slipstream.run.diff.source import Edit, NoEdit, Source
from slipstream.run.diff.statements import wrapped
from slipstream.run.diff.workspace import Workspace
from slipstream.run.evaluating.flow import keeps_to_itself
from slipstream.run.fix import Situation
from slipstream.run.fixes.foreach_optimizer import gives_the_same
from slipstream.run.fixes.fused_optimizer import best_way

Changes = list[Edit | TopLine]
_FUSED = ("SGD", "Adam", "AdamW")
_FILLED = "zero_grad(set_to_none=False)"
_CHOICE = re.compile(r"requires_grad|\binputs\s*=")


def fused_optimizer(space: Workspace, situation: Situation) -> Changes:
    """`fused=True`, or `foreach=True`, where optimizers are made."""
    changes: Changes = []
    for entry in situation.capture.optimizers:
        if not entry["is_torchs"] or entry["fused"] is not None or entry["foreach"]:
            continue
        way = best_way(situation) or "foreach"
        if entry["class"] not in _FUSED:
            way = "foreach"
        if way == "foreach" and entry.get("adds_to_gradients"):
            continue
        source, line = space.at(entry.get("made_at"))
        call = call_named(source, line, entry["class"])
        changes += _one(with_keyword(source, call, way, "True"))
    return changes


def foreach_optimizer(space: Workspace, situation: Situation) -> Changes:
    """`foreach=True`, where optimizers are made."""
    changes: Changes = []
    for entry in situation.capture.optimizers:
        if gives_the_same(entry):
            source, line = space.at(entry.get("made_at"))
            call = call_named(source, line, entry["class"])
            changes += _one(with_keyword(source, call, "foreach", "True"))
    return changes


def zero_grad(space: Workspace, situation: Situation) -> Changes:
    """`zero_grad()`, where every parameter gets a gradient: one without would have had zeros, with
    which momentum and weight decay go on.
    """
    if any(entry.get("without_grad") for entry in situation.capture.optimizers):
        raise NoEdit("some parameters get no gradient, and need their zeros")
    if _chooses_parameters(space):
        raise NoEdit("the script chooses what learns, and what does not may need its zeros")
    changes: Changes = []
    for call in situation.capture.calls:
        if call.what == _FILLED:
            source, line = space.at(call.where)
            for node in calls_at(source, line, lambda node: called_name(node) == "zero_grad"):
                changes.append(_without_arguments(source, node))
    return _once(changes)


def _chooses_parameters(space: Workspace) -> bool:
    """Whether a parameter may stop learning later than anybody has looked."""
    files = [file for file in space.main().path.parent.glob("*.py") if file.is_file()]
    return any(_CHOICE.search(file.read_text(errors="replace")) for file in files)


def _without_arguments(source: Source, call: ast.Call) -> Edit:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if len(given) != 1 or not isinstance(given[0], ast.Constant) or given[0].value is not False:
        raise NoEdit(f"what {source.path.name}:{call.lineno} passes to zero_grad is computed")
    return Edit(source.path, source.end(call.func), source.end(call), "()")


def non_blocking_copies(space: Workspace, situation: Situation) -> Changes:
    """Page-locked batches of loaders, copied while the loop goes on."""
    changes: Changes = []
    for call in situation.capture.calls:
        if call.what in ("Tensor.to", "Tensor.cuda") and call.facts.get("blocking"):
            source, line = space.at(call.where)
            for node in calls_at(source, line, lambda node: called_name(node) in ("to", "cuda")):
                check_direction(source, node)
                check_source(source, node)
                changes += _one(with_keyword(source, node, "non_blocking", "True"))
    for loader in situation.capture.loaders:
        if loader.kind == "map" and not loader.pin_memory:
            source, line = space.at(loader.made_at)
            node = call_named(source, line, "DataLoader")
            changes += _one(with_keyword(source, node, "pin_memory", "True"))
    return _once(changes)


def more_workers(space: Workspace, situation: Situation) -> Changes:
    """Where the loader is made."""
    found = wanted_workers(Case(situation.capture, attribute(situation.capture)))
    loading = attribute(situation.capture).loading
    if found is None or loading is None:
        raise NoEdit("no number of workers was found that keeps up")
    source, line = space.at(loading.loader.made_at)
    call = call_named(source, line, "DataLoader")
    return _one(with_keyword(source, call, "num_workers", str(found)))


def inference_mode(space: Workspace, situation: Situation) -> Changes:
    """`torch.no_grad()` around the calls of evaluation whose results their functions keep to
    themselves.
    """
    case = Case(situation.capture, attribute(situation.capture))
    changes: Changes = []
    for model in wasted_passes(case):
        where = facts_of(case, model).get("modes", {}).get("eval", {}).get("where")
        source, line = space.at(where)
        code = _code_at(source, line)
        if code is None or not keeps_to_itself(code, line, {}, names_of(source)).stays:
            raise NoEdit(f"what is made of the model's output at {where} cannot be told")
        if not imports_at_top(source.tree, "torch"):
            raise NoEdit(f"{source.path.name} has no name for torch")
        call = calls_at(source, line, lambda node: True)[0]
        changes.append(wrapped(source, source.statement(call), "with torch.no_grad():"))
    return _once(changes)


def _code_at(source: Source, line: int) -> CodeType | None:
    """Of the innermost function that has a line."""
    found: CodeType | None = None
    waiting: list[Any] = [compile(source.text, str(source.path), "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        if any(line == number for _, _, number in code.co_lines()):
            found = code if found is None or code.co_firstlineno >= found.co_firstlineno else found
        waiting += [part for part in code.co_consts if isinstance(part, CodeType)]
    return found


def _one(edit: Edit | None) -> Changes:
    return [] if edit is None else [edit]


def _once(changes: Changes) -> Changes:
    return list(dict.fromkeys(changes))
