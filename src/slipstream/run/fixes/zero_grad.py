"""`zero-grad`: gradients are let go instead of being filled with zeros.

A gradient of zeros is not the same as none: momentum and weight decay go on with it. So a parameter
whose gradient was let go and that gets none from the next backward pass is given its zeros then.
So is one that is looked at before that, by whomever. What differs: where a backward pass gives
-0.0, that stays, and is not added to 0.0. Sums, products and comparisons do not tell the two
apart; only a division by a weight that is exactly zero could.
"""

import sys
import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo

NAME = "zero-grad"
_SEEN = "zero_grad(set_to_none=False)"
_GRADIENT: Any = torch._C.TensorBase.grad
_of = _GRADIENT.__get__
_let_go_of = _GRADIENT.__set__


def applies(situation: Situation) -> tuple[bool, str]:
    """Where the loop fills them."""
    if not situation.called(_SEEN):
        return False, "gradients are let go already"
    if not hasattr(torch.Tensor, "_use_count") or not hasattr(torch._C, "_storage_Use_Count"):
        return False, "this torch does not say who shares a gradient's memory"
    if situation.capture.settings.get("compilations"):
        return False, "the script compiles, and what is compiled may look at gradients"
    return True, "zero_grad(set_to_none=False) in the loop"


def apply(situation: Situation) -> Undo:
    """Of optimizers and of modules."""
    gradients = _Gradients(situation)
    patches = Patches()
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        patches.replace(owner, "zero_grad", gradients.wrap_zero_grad)
    patches.replace(torch.autograd, "backward", gradients.wrap_backward)
    patches.replace(torch.cuda.CUDAGraph, "capture_begin", gradients.wrap_capture)
    # Of the class that has both from its base; what is set there goes before it.
    seen = property(gradients.look, gradients.set, gradients.delete)
    torch.Tensor.grad = torch.Tensor._grad = seen  # type: ignore[assignment]
    handle = register_optimizer_step_pre_hook(lambda *_: gradients.pay())

    def undo() -> None:
        gradients.pay()
        handle.remove()
        patches.undo()
        del torch.Tensor.grad, torch.Tensor._grad

    return undo


class _Gradients:
    """Knows which parameters are owed zeros."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._owed: dict[int, weakref.ref[torch.Tensor]] = {}
        self._is_on = True
        self._is_own = False  # look
        alone = torch.zeros(1, requires_grad=True)
        alone.grad = torch.zeros(1)
        gradient = alone.grad
        storage = gradient.untyped_storage()
        self._alone = _holders(gradient, storage)

    def wrap_zero_grad(self, original: Any) -> Any:
        def zero_grad(thing: Any, set_to_none: bool = True) -> None:
            if not self._is_on or torch.compiler.is_compiling():
                original(thing, set_to_none=set_to_none)
                return
            self._is_own = True
            try:
                try:
                    stay = self._let_go(thing, owed=not set_to_none)
                except Exception as error:
                    self._give_up(error)
                    stay = True
                if stay:
                    original(thing, set_to_none=set_to_none)
            finally:
                self._is_own = False

        return zero_grad

    def wrap_backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self.pay()
            return result

        return backward

    def wrap_capture(self, original: Any) -> Any:
        """A graph of a device writes to the memory that gradients had when it was captured."""

        def capture_begin(*args: Any, **kwargs: Any) -> Any:
            self.pay()
            self._is_on = False
            return original(*args, **kwargs)

        return capture_begin

    def look(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """At a gradient."""
        if self._owed and not self._is_own:
            self.pay()
        found: torch.Tensor | None = _of(tensor)
        return found

    def set(self, tensor: torch.Tensor, gradient: torch.Tensor | None) -> None:
        """By the script: whatever it sets is what there is."""
        self._owed.pop(id(tensor), None)
        _GRADIENT.__set__(tensor, gradient)

    def delete(self, tensor: torch.Tensor) -> None:
        """By the script."""
        self._owed.pop(id(tensor), None)
        _GRADIENT.__delete__(tensor)

    def pay(self) -> None:
        """Those that got no gradient since theirs was let go have one of zeros, as before."""
        if not self._owed:
            return
        owed, self._owed = self._owed, {}
        for reference in owed.values():
            parameter = reference()
            if parameter is not None and _of(parameter) is None:
                with torch.inference_mode(False), torch.no_grad():  # whoever looks
                    parameter.grad = torch.zeros_like(parameter)

    def _let_go(self, thing: Any, *, owed: bool) -> bool:
        """Whether there are some that had to stay, or something to warn of."""
        stay = getattr(thing, "_is_replica", False)
        for parameter in _parameters(thing):
            if not owed:
                self._owed.pop(id(parameter), None)
            elif _of(parameter) is None:
                continue
            elif self._is_free(parameter):
                _let_go_of(parameter, None)
                self._owed[id(parameter)] = weakref.ref(parameter)
            else:
                stay = True
        return stay or not owed

    def _is_free(self, parameter: torch.Tensor) -> bool:
        """Whether nobody else knows the gradient: a part of a larger buffer must be filled."""
        gradient = _of(parameter)
        if gradient is None or gradient.layout is not torch.strided or gradient._is_view():
            return False
        # Zeros that it is owed will look like the parameter.
        if gradient.dtype != parameter.dtype or gradient.stride() != parameter.stride():
            return False
        storage = gradient.untyped_storage()
        is_whole = storage.nbytes() == gradient.nbytes
        return is_whole and _holders(gradient, storage) == self._alone

    def _give_up(self, error: Exception) -> None:
        self._is_on = False
        self.pay()
        self._situation.give_up(NAME, error)


def _parameters(thing: Any) -> list[torch.Tensor]:
    groups = getattr(thing, "param_groups", None)
    if groups is None:
        return list(thing.parameters())
    return [parameter for group in groups for parameter in group["params"]]


def _holders(gradient: torch.Tensor, storage: torch.UntypedStorage) -> tuple[int, ...]:
    """How many know the tensor, by Python and by torch, and how many its memory."""
    return (
        sys.getrefcount(gradient),
        gradient._use_count(),  # type: ignore[attr-defined]
        sys.getrefcount(storage),
        torch._C._storage_Use_Count(storage._cdata),
    )


FIX = Fix(
    NAME, "E", "gradients are let go, not filled with zeros", ("zero-grad-memset",), applies, apply
)
