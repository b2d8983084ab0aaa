"""`fused-optimizer`: torch's optimizers update all parameters at once.

Groups that leave the choice to torch, or ask for a loop, are switched to the fused form where all
of their tensors allow it, else to the one for lists of tensors. Gradients are looked at in every
step, and states once: the fused form takes for granted that a parameter, its gradient and its state
lie in the same order, and that all have a state or none.
"""

from typing import Any

import torch

from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.fixes.foreach_optimizer import gives_the_same
from slipstream.run.optimizers import Switched, is_open, measured_gain, switch
from slipstream.words import count_of

NAME = "fused-optimizer"
RULE = "for-loop-optimizer"
_DEVICES = ("cuda", "cpu")
_FUSED = {"SGD": _DEVICES, "Adam": _DEVICES, "AdamW": _DEVICES, "Adagrad": ("cpu",)}


def applies(situation: Situation) -> tuple[bool, str]:
    """Where an optimizer of torch works in its default way, and a copy of it was not measured to be
    slower in the other ones.
    """
    found = [entry for entry in situation.capture.optimizers if _can_choose(entry)]
    if not found:
        return False, "no optimizer that could do it in another way"
    way = best_way(situation)
    if way is None:
        return False, "measured: the other ways are not faster"
    if way == "foreach":
        found = [entry for entry in found if not gives_the_same(entry)]
    if not found:
        return False, "what may be faster gives the same results here: foreach-optimizer"
    return True, f"{found[0]['class']} has {count_of(found[0]['parameters'], 'parameter')}: {way}"


def _can_choose(entry: dict[str, Any]) -> bool:
    return bool(
        entry["is_torchs"]
        and not entry["foreach"]
        and entry["fused"] is None
        and not entry.get("capturable")
        and entry.get("device") in _DEVICES
    )


def best_way(situation: Situation) -> str | None:
    """By the doctor's measurements, where there are any; None: the loop. On processors the fused
    form starts all threads for each parameter, and is slow where cores are busy.
    """
    measured = {way: measured_gain(situation, way) for way in ("fused", "foreach")}
    gains = {way: gain for way, gain in measured.items() if gain is not None}
    if not gains:
        return "fused" if situation.on_device else "foreach"
    if gains.get("fused", 0.0) > 1 and all(map(gives_the_same, situation.capture.optimizers)):
        return "fused"  # the other one is an exact fix, beside which this has to be faster
    best = max(gains, key=lambda way: gains[way])
    return best if gains[best] > 1 else None


def apply(situation: Situation) -> Undo:
    """In the way that was the fastest."""
    is_fused = best_way(situation) == "fused"
    return switch(Switched(situation, NAME, _may_be_switched, can_be_fused if is_fused else None))


def _may_be_switched(optimizer: Any, group: dict[str, Any]) -> bool:
    return is_open(group, _DEVICES)


def can_be_fused(optimizer: Any, group: dict[str, Any], known: dict[Any, Any]) -> bool:
    """Whether the fused form would give the right result for what is there now. `known` are
    strides of parameters whose state was looked at; what has none yet is looked at again.
    """
    devices = _FUSED.get(type(optimizer).__name__, ())
    if "fused" not in group or any(p.device.type not in devices for p in group["params"]):
        return False
    are_new, are_known = [], False
    for parameter in group["params"]:
        gradient = parameter.grad
        if gradient is None:
            continue
        order = parameter.stride()
        if gradient.stride() != order:
            return False
        if known.get(id(parameter)) != order:
            are_new.append(parameter)
        else:
            are_known = True
    if not are_new:
        return True
    state = optimizer.state
    if not all(_fits(parameter, state.get(parameter, {})) for parameter in are_new):
        return False
    begun = [p for p in are_new if any(value is not None for value in state.get(p, {}).values())]
    known.update((id(parameter), parameter.stride()) for parameter in begun)
    # SGD begins with a momentum that is the gradient: for all of them, or for none.
    some_have_none = len(begun) < len(are_new)
    return not (group.get("momentum") and some_have_none and (begun or are_known))


def _fits(parameter: torch.Tensor, state: dict[str, Any]) -> bool:
    gradient = parameter.grad
    return (
        parameter.is_floating_point()
        and gradient is not None
        and gradient.dtype == parameter.dtype
        and _is_dense(parameter)
        and all(
            value is None or (value.stride(), value.dtype) == (parameter.stride(), parameter.dtype)
            for name, value in state.items()
            if name != "step"
        )
    )


def _is_dense(parameter: torch.Tensor) -> bool:
    if parameter.is_contiguous():
        return True
    return parameter.ndim == 4 and parameter.is_contiguous(memory_format=torch.channels_last)


FIX = Fix(NAME, "N", "optimizers update all parameters at once", (RULE,), applies, apply)
