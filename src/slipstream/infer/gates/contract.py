"""Whether a variant can stand in for the model: results of the same form, inputs left alone, and
results that stay what they are.
"""

from typing import Any

import torch

from slipstream.infer.gates.reference import Reference
from slipstream.infer.inputs import Inputs
from slipstream.infer.keeping import TookTooLong
from slipstream.infer.leaves import changed, tensors_of
from slipstream.infer.shell import emptied


def contract(model: Any, reference: Reference) -> str | None:
    """Why it cannot; None if nothing speaks against it."""
    if reference.changes_inputs:
        return "the model changes its inputs, as only the model itself can be relied on to do"
    for answer in (*reference.answers, *reference.others):
        given = answer.inputs.copy()
        with torch.no_grad():
            try:
                result = given(model)
            except TookTooLong:
                raise
            except Exception as error:
                shapes = ", ".join(str(tuple(t.shape)) for t in given.tensors())
                return f"fails for inputs of {shapes}: {type(error).__name__}: {error}"
        why = _differs(result, answer.eager) or _mutated(given, answer.inputs)
        if why:
            return why
    return _is_overwritten(model, reference)


def _differs(result: Any, eager: Any) -> str | None:
    (tensors, shell), (expected, expected_shell) = emptied(result), emptied(eager)
    if not shell.is_like(expected_shell):
        return f"gives {_form(result)}, the model gives {_form(eager)}"
    for one, other in zip(tensors, expected, strict=True):
        if _kind(one) != _kind(other):
            return f"gives {_kind(one)}, the model gives {_kind(other)}"
        if other.is_contiguous() and not one.is_contiguous():
            return "gives a result that is not contiguous, the model's is"
    for one, other in zip(tensors_of(result), tensors_of(eager), strict=True):
        if not one.is_floating_point():
            continue
        bad = ~torch.isfinite(one) & torch.isfinite(other)
        if bad.any():
            return f"{int(bad.sum())} of {one.numel()} values are no finite numbers"
    return None


def _kind(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    name = "" if is_plain else f"{type(tensor).__name__} of "
    return f"{name}{tuple(tensor.shape)} {dtype} on {tensor.device.type}"


def _form(value: Any) -> str:
    """Its nesting, in a few words."""
    return repr(changed(value, lambda tensor: torch.empty(0)))[:100]


def _mutated(given: Inputs, before: Inputs) -> str | None:
    for one, other in zip(given.tensors(), before.tensors(), strict=True):
        if not torch.equal(one, other) and not bool(torch.isnan(other).any()):
            return "changes its inputs"
    return None


def _is_overwritten(model: Any, reference: Reference) -> str | None:
    """Results that are held while the next ones are computed must stay what they were."""
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    with torch.no_grad():
        for answer in reference.answers:
            result = answer.inputs.copy()(model)
            held += [(tensor, tensor.clone()) for tensor in tensors_of(result)]
    for tensor, before in held:
        if not torch.equal(tensor.nan_to_num(), before.nan_to_num()):
            return "a result changes when the model is called again"
    return None
