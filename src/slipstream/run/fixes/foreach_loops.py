"""`foreach-loops`: moving averages of a model update all of its parameters at once.

Loops that a script writes (see looping/find.py), and `torch.optim.swa_utils.AveragedModel` where it
calls a function for each parameter. `clip_grad_norm_` and optimizers do so by themselves. The
source of the script is read, changed in memory and compiled; lines keep their numbers, and nothing
is written.
"""

import builtins
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.optim import swa_utils

from slipstream import launch
from slipstream.doctor.record.places import is_foreign
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.looping.find import HANDED_TO, rewritten
from slipstream.run.looping.together import are_apart, split, update

NAME = "foreach-loops"
RULE = "parameter-loop"
_FEWEST = 2  # pairs


def applies(situation: Situation) -> tuple[bool, str]:
    """Where such a loop takes time, or the script has a model averaged."""
    found = [entry for entry in situation.report["findings"] if entry["rule"] == RULE]
    if found:
        return True, f"a loop over the parameters at {found[0]['where']}"
    if "AveragedModel(" in _source(situation.capture.script):
        return True, "AveragedModel goes through the parameters one by one"
    return False, "no loop over the parameters takes time that counts"


def apply(situation: Situation) -> Undo:
    """To the script and the modules that it imports from its own folders."""
    loops = _Loops(situation)
    patches = Patches()
    patches.replace(launch, "_compiled", loops.wrap_compiled)
    patches.replace(SourceFileLoader, "get_code", loops.wrap_get_code)
    patches.replace(swa_utils.AveragedModel, "update_parameters", loops.wrap_averaged)
    setattr(builtins, HANDED_TO, loops.pairs)

    def undo() -> None:
        # What was compiled so far still calls it.
        setattr(builtins, HANDED_TO, lambda pairs, *_: pairs)
        patches.undo()

    return undo


class _Loops:
    """Does loops at once, or lets them go on as they are written."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation

    def pairs(self, pairs: Any, kind: str, by: str, factors: Any) -> Any:
        """What is left to go over: what cannot be done at once, or all of it."""
        if NAME in self._situation.failures or torch.compiler.is_compiling():
            return pairs
        listed = list(pairs)
        try:
            values = factors()
            simple, others = split(listed, kind)
            may = len(simple) >= _FEWEST and not (by == "itself" and torch.is_grad_enabled())
            if not may or not are_apart(listed, values):
                return listed
        except Exception:
            return listed
        update(simple, kind, by, values)
        self._situation.note(NAME, f"{len(simple)} tensors are updated at once")
        return others

    def wrap_compiled(self, original: Any) -> Any:
        def compiled(path: Path) -> CodeType:
            code: CodeType = original(path)
            return self._changed(path.read_bytes(), str(path.absolute())) or code

        return compiled

    def wrap_get_code(self, original: Any) -> Any:
        def get_code(loader: Any, fullname: str) -> Any:
            path = loader.get_filename(fullname)
            if is_foreign(path) or NAME in self._situation.failures:
                return original(loader, fullname)
            return self._changed(loader.get_data(path), path) or original(loader, fullname)

        return get_code

    def wrap_averaged(self, original: Any) -> Any:
        def update_parameters(averaged: Any, model: Any) -> None:
            at_once = self._at_once(averaged)
            if at_once is None:
                original(averaged, model)
                return
            averaged.multi_avg_fn = at_once
            try:
                original(averaged, model)
            finally:
                averaged.multi_avg_fn = None
            self._situation.note(NAME, "AveragedModel is updated at once")

        return update_parameters

    def _at_once(self, averaged: Any) -> Any:
        """torch's own function for all, in the place of its own for one."""
        try:
            if getattr(averaged, "multi_avg_fn", None) is not None:
                return None
            one = averaged.avg_fn
            if one is None:
                return swa_utils.get_swa_multi_avg_fn()  # type: ignore[no-untyped-call]
            own = swa_utils.get_ema_avg_fn()  # type: ignore[no-untyped-call]
            if getattr(one, "__wrapped__", one).__code__ is not own.__wrapped__.__code__:
                return None
            inner = one.__wrapped__
            decay = inner.__closure__[inner.__code__.co_freevars.index("decay")].cell_contents
            return swa_utils.get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        except Exception as error:
            self._situation.give_up(NAME, error)
            return None

    def _changed(self, source: bytes, file: str) -> CodeType | None:
        try:
            tree = rewritten(source, file)
            return None if tree is None else compile(tree, file, "exec", dont_inherit=True)
        except SyntaxError:
            return None  # Python will say so itself
        except Exception as error:
            self._situation.give_up(NAME, error)
            return None


def _source(script: str) -> str:
    try:
        return Path(script.split(" ", 1)[0]).read_text(errors="replace")
    except OSError:
        return ""


FIX = Fix(NAME, "N", "moving averages update all parameters at once", (RULE,), applies, apply)
