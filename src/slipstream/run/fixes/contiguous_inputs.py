"""`contiguous-inputs`: views whose elements do not lie side by side are laid so for convolutions.

A convolution copies such a view in its forward pass and again in its backward pass; one copy does
for both. Kernels are chosen by how their input lies, and may round differently: every layer is
computed both ways once for each kind of input, forward and backward, and left alone unless all bits
are the same. Linear layers mostly fail that, and are not tried.
"""

import copy
import weakref
from typing import Any

import torch
from torch.autograd import grad as gradients_of

from slipstream.doctor.record.inside import layout_of
from slipstream.patches import Patches
from slipstream.run.evaluating.purity import are_equal
from slipstream.run.fix import Fix, Situation, Undo

NAME = "contiguous-inputs"
RULE = "non-contiguous-input"
_KINDS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
_MOST_SHAPES = 8


def applies(situation: Situation) -> tuple[bool, str]:
    """Where such inputs were measured to cost time."""
    found = [entry for entry in situation.report["findings"] if entry["rule"] == RULE]
    if not found:
        return False, "no convolution gets a view that costs time"
    return True, f"a view that is not contiguous at {found[0]['where']}"


def apply(situation: Situation) -> Undo:
    """Of torch's own convolutions."""
    inputs = _Inputs(situation)
    patches = Patches()
    for kind in _KINDS:
        patches.replace(kind, "forward", inputs.wrap)
    return patches.undo


class _Inputs:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._equal: weakref.WeakKeyDictionary[Any, dict[Any, bool]] = weakref.WeakKeyDictionary()

    def wrap(self, original: Any) -> Any:
        def forward(module: Any, input: Any) -> Any:
            if NAME in self._situation.failures or torch.compiler.is_compiling():
                return original(module, input)
            try:
                given = input.contiguous() if self._helps(original, module, input) else input
            except Exception as error:
                self._situation.give_up(NAME, error)
                given = input
            return original(module, given)

        return forward

    def _helps(self, original: Any, module: Any, given: Any) -> bool:
        if given.is_contiguous() or layout_of(given) != "other":
            return False
        if torch.is_inference_mode_enabled():
            return False  # gradients could not be compared
        if "weight" not in module._parameters:
            return False  # computed from others, each time anew
        known = self._equal.setdefault(module, {})
        kind = (
            tuple(given.shape), given.stride(), given.dtype, given.device, given.requires_grad,
            module.weight.requires_grad, module.weight.stride(), torch.is_grad_enabled(),
            torch.is_autocast_enabled(given.device.type),
        )  # fmt: skip
        if kind not in known:
            if len(known) >= _MOST_SHAPES:
                return False
            is_same = known[kind] = _is_same(original, module, given)
            done = "copied once for" if is_same else "left alone, as it rounds differently:"
            line = f"{done} {type(module).__name__} on {tuple(given.shape)}"
            self._situation.note(NAME, line, left=not is_same)
        return known[kind]


def _is_same(original: Any, module: Any, given: torch.Tensor) -> bool:
    """Both ways: results, and gradients of all that has one."""
    with torch.enable_grad():
        views = given.detach()
        ways = [
            _both_passes(original, _stand_in(module), way, given.requires_grad)
            for way in (views, views.contiguous())
        ]
    return are_equal(ways[0], ways[1])


def _stand_in(module: Any) -> Any:
    """A module like it, on whose weights no hooks of the script are."""
    made = copy.copy(module)
    made._parameters = {
        name: None if own is None else own.detach().requires_grad_(own.requires_grad)
        for name, own in module._parameters.items()
    }
    return made


def _both_passes(original: Any, module: Any, given: torch.Tensor, needs_grad: bool) -> list[Any]:
    given = given.requires_grad_(needs_grad)
    result = original(module, given)
    wanted = [t for t in (given, module.weight, module.bias) if t is not None and t.requires_grad]
    if not wanted:
        return [result]
    return [result, *gradients_of(result, wanted, result.detach())]


FIX = Fix(NAME, "E", "views are laid side by side once for convolutions", (RULE,), applies, apply)
