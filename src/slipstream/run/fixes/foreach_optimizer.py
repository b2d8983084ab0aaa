"""`foreach-optimizer`: on a processor, torch's optimizers go through all parameters in C++.

There `foreach` makes the same operations on the same tensors in the same order for each of them, so
each comes out the same: for the optimizers and types named here, which compute nothing in another
way. It takes memory, some times that of the parameters: where these are large there is nothing to
gain, as what takes time is their elements.
"""

from typing import Any

import torch

from slipstream.nesterov import adds_to_gradients
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.fixes import native_optimizer
from slipstream.run.optimizers import Switched, is_open, measured_gain, switch
from slipstream.words import count_of

NAME = "foreach-optimizer"
EQUAL = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "RMSprop", "Rprop")
_TYPES = (torch.float32, torch.float64)
_MOST_ELEMENTS = 16_000_000


def applies(situation: Situation) -> tuple[bool, str]:
    """Where an optimizer works in its default way, and that way was not measured to be faster."""
    found = [entry for entry in situation.capture.optimizers if gives_the_same(entry)]
    if not found:
        return False, "no optimizer that gives the same results in another way"
    if all(map(native_optimizer.can_be_native, found)) and native_optimizer.applies(situation)[0]:
        return False, f"{native_optimizer.NAME} does more"
    gain = measured_gain(situation, "foreach")
    if gain is not None and gain <= 1:
        return False, "measured: it is not faster"
    return True, f"{found[0]['class']} has {count_of(found[0]['parameters'], 'parameter')}"


def gives_the_same(entry: dict[str, Any]) -> bool:
    """Of what was seen of an optimizer."""
    return bool(
        entry["class"] in EQUAL
        and entry["is_torchs"]
        and entry["foreach"] is None
        and entry["fused"] is None
        and not entry.get("capturable")
        and not entry.get("adds_to_gradients")
        and {*entry.get("types", ())} <= {str(kind).removeprefix("torch.") for kind in _TYPES}
        and entry.get("device") == "cpu"
        and entry.get("elements", 0) <= _MOST_ELEMENTS
    )


def apply(situation: Situation) -> Undo:
    """As said."""
    native = native_optimizer.NAME
    beside = native if native in situation.in_place else None
    return switch(Switched(situation, NAME, _may_be_switched, types=_TYPES, beside=beside))


def _may_be_switched(optimizer: Any, group: dict[str, Any]) -> bool:
    parameters = group["params"]
    return (
        type(optimizer).__name__ in EQUAL
        and group.get("foreach") is None
        and is_open(group, ("cpu",))
        and not adds_to_gradients(group)
        and all(parameter.dtype in _TYPES for parameter in parameters)
        and sum(parameter.numel() for parameter in parameters) <= _MOST_ELEMENTS
        and _lie_apart(parameters)
    )


def _lie_apart(parameters: list[torch.Tensor]) -> bool:
    """Those that share memory see what was done to the others before them."""
    places = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    return len(places) == len(parameters)


FIX = Fix(NAME, "E", "optimizers go through parameters in C++", (), applies, apply)
