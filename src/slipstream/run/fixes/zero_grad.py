"""`zero-grad`: gradients are let go instead of being filled with zeros."""

from typing import Any

import torch

from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo

NAME = "zero-grad"
_SEEN = "zero_grad(set_to_none=False)"


def applies(situation: Situation) -> tuple[bool, str]:
    """Where the loop fills them."""
    if not situation.called(_SEEN):
        return False, "gradients are let go already"
    return True, "zero_grad(set_to_none=False) in the loop"


def apply(situation: Situation) -> Undo:
    """Of optimizers and of modules."""
    patches = Patches()
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        patches.replace(owner, "zero_grad", _wrap)
    return patches.undo


def _wrap(original: Any) -> Any:
    def zero_grad(thing: Any, set_to_none: bool = True) -> None:
        # Where one parameter got no gradient in this step, a zero is not nothing: momentum and
        # weight decay go on with it.
        original(thing, set_to_none=set_to_none or _all_have_gradients(thing))

    return zero_grad


def _all_have_gradients(thing: Any) -> bool:
    groups = getattr(thing, "param_groups", None)
    parameters = thing.parameters() if groups is None else (p for g in groups for p in g["params"])
    return all(p.grad is not None for p in parameters if p.requires_grad)


FIX = Fix(
    NAME, "E", "gradients are let go, not filled with zeros", ("zero-grad-memset",), applies, apply
)
