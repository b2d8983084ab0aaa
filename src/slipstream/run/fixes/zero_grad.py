"""`zero-grad`: gradients are let go instead of being filled with zeros.

A gradient of zeros is not the same as none: momentum and weight decay go on with it. So a parameter
whose gradient was let go and that gets none from the next backward pass is given its zeros then.
Where the script's own source has `.grad` in it, gradients are filled as it says: it might look at
them before that. What differs: where a backward pass gives -0.0, that stays, and is not added to
0.0. Sums, products and comparisons do not tell the two apart; only a division by a weight that is
exactly zero could.
"""

import ast
import sys
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.loading.looks import is_users_module

NAME = "zero-grad"
_SEEN = "zero_grad(set_to_none=False)"


def applies(situation: Situation) -> tuple[bool, str]:
    """Where the loop fills them."""
    if not situation.called(_SEEN):
        return False, "gradients are let go already"
    return True, "zero_grad(set_to_none=False) in the loop"


def apply(situation: Situation) -> Undo:
    """Of optimizers and of modules."""
    gradients = _Gradients(situation)
    patches = Patches()
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        patches.replace(owner, "zero_grad", gradients.wrap_zero_grad)
    patches.replace(torch.autograd, "backward", gradients.wrap_backward)
    patches.replace(torch.cuda.CUDAGraph, "capture_begin", gradients.wrap_capture)
    handle = register_optimizer_step_pre_hook(lambda *_: gradients.pay())

    def undo() -> None:
        gradients.pay()
        handle.remove()
        patches.undo()

    return undo


class _Gradients:
    """Knows which parameters are owed zeros."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._owed: dict[int, weakref.ref[torch.Tensor]] = {}
        self._is_on = True
        self._modules = -1  # that were there when it was last looked who reads gradients
        alone = torch.zeros(1, requires_grad=True)
        alone.grad = torch.zeros(1)
        self._alone = _references(alone)

    def wrap_zero_grad(self, original: Any) -> Any:
        def zero_grad(thing: Any, set_to_none: bool = True) -> None:
            if not self._may_let_go() or torch.compiler.is_compiling():
                original(thing, set_to_none=set_to_none)
                return
            try:
                self._let_go(thing, owed=not set_to_none)
            except Exception as error:
                self._give_up(error)
            # Of those that had to stay.
            original(thing, set_to_none=set_to_none)

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

    def _may_let_go(self) -> bool:
        if self._is_on and len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            place = next((m.__file__ for m in _users_modules() if reads_gradients(m)), None)
            if place is not None:
                self._is_on = False
                self.pay()
                self._situation.note(NAME, f"left alone: {place} looks at .grad", left=True)
        return self._is_on

    def pay(self) -> None:
        """Those that got no gradient since theirs was let go have one of zeros, as before."""
        if not self._owed:
            return
        owed, self._owed = self._owed, {}
        for reference in owed.values():
            parameter = reference()
            if parameter is not None and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def _let_go(self, thing: Any, *, owed: bool) -> None:
        for parameter in _parameters(thing):
            if not owed:
                self._owed.pop(id(parameter), None)
            elif parameter.grad is not None and self._is_free(parameter):
                parameter.grad = None
                self._owed[id(parameter)] = weakref.ref(parameter)

    def _is_free(self, parameter: torch.Tensor) -> bool:
        """Whether nobody else knows the gradient: a part of a larger buffer must be filled."""
        gradient = parameter.grad
        if gradient is None or gradient.layout is not torch.strided or gradient._is_view():
            return False
        whole = gradient.untyped_storage().nbytes() == gradient.nbytes
        # Zeros that it is owed will look like the parameter.
        whole = whole and gradient.dtype == parameter.dtype
        whole = whole and gradient.stride() == parameter.stride()
        del gradient
        return whole and _references(parameter) == self._alone

    def _give_up(self, error: Exception) -> None:
        self._is_on = False
        self.pay()
        self._situation.give_up(NAME, error)


_known: dict[str, bool] = {}


def _users_modules() -> list[Any]:
    return [module for module in [*sys.modules.values()] if is_users_module(module)]


def reads_gradients(module: Any) -> bool:
    """Whether its source has an attribute of this name, other than torch.autograd's function."""
    file = str(module.__file__)
    if file not in _known:
        try:
            tree = ast.parse(Path(file).read_bytes())
        except (OSError, SyntaxError, ValueError):  # no source to read
            _known[file] = True
        else:
            _known[file] = any(map(_is_gradient, ast.walk(tree)))
    return _known[file]


def _is_gradient(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != "grad":
        return False
    owner = node.value
    return (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")) != (
        "autograd"
    )


def _parameters(thing: Any) -> list[torch.Tensor]:
    groups = getattr(thing, "param_groups", None)
    if groups is None:
        return list(thing.parameters())
    return [parameter for group in groups for parameter in group["params"]]


def _references(parameter: torch.Tensor) -> int:
    gradient = parameter.grad
    return sys.getrefcount(gradient)


FIX = Fix(
    NAME, "E", "gradients are let go, not filled with zeros", ("zero-grad-memset",), applies, apply
)
