"""A group of parameters in one native call, where torch makes some calls for each of them.

What is rounded where is the same; `arithmetic` asks whether that holds for the torch at hand.
"""

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from slipstream import _native

MOST_ELEMENTS = 2_000_000  # one thread works on them; torch takes more where there are more
_MOST_PLACES = 100_000
# Beyond, torch may say that a number is too large for a float.
_LARGEST_RATE = 1e20

Tensors = Sequence[torch.Tensor]
Lists = Sequence[Tensors]
Rates = Mapping[str, float]
ADAM = ("lr", "beta1", "beta2", "eps", "weight_decay")
SGD = ("lr", "momentum", "dampening", "weight_decay")


class Scratch(threading.local):
    """Of each thread: memory that holds nothing between steps, and where the tensors of groups lay
    in the last ones, as most lie there again.
    """

    def __init__(self) -> None:
        self.roots = torch.empty(0, dtype=torch.float32, device="cpu")
        self._known: dict[tuple[int, ...], tuple[list[int], Any]] = {}
        self._places = 0

    def native(self, lists: Lists) -> Any:
        """A native group of these: parameters, gradients, and momentum (SGD) or both means and
        counts of steps (Adam). None where they share memory, or have none.
        """
        places = [tensor.data_ptr() for tensors in lists for tensor in tensors]
        counts = [tensor.numel() for tensor in lists[0]]
        key = (len(lists), *counts)
        before = self._known.get(key)
        if before is not None and before[0] == places:
            return before[1]
        made = self._make(lists, counts, places)
        if self._places > _MOST_PLACES:
            self._known.clear()
            self._places = 0
        self._known[key] = places, made
        self._places += len(places)
        return made

    def _make(self, lists: Lists, counts: list[int], places: list[int]) -> Any:
        if 0 in places:
            return None
        ends = itertools.accumulate(map(len, lists), initial=0)
        parts = [places[first:end] for first, end in itertools.pairwise(ends)]
        made = _native.Sgd(counts, *parts) if len(lists) == _SGDS else self._adam(counts, parts)
        return made if made.lies_apart() else None

    def _adam(self, counts: list[int], parts: list[list[int]]) -> _native.Adam:
        if len(self.roots) < sum(counts):
            self._known.clear()  # they point to what was there before
            self.roots = torch.empty(sum(counts), dtype=torch.float32, device="cpu")
        # Side by side, so that their roots are one call.
        ends = itertools.accumulate(counts, initial=0)
        roots = [self.roots.data_ptr() + 4 * end for end in ends][:-1]
        values, gradients, firsts, seconds, steps = parts
        return _native.Adam(counts, values, gradients, firsts, seconds, roots, steps)


_SGDS = 3


def adam(
    lists: Lists, native: _native.Adam, scratch: Scratch, rates: Rates, *, is_fused: bool,
    is_decoupled: bool,
) -> bool:  # fmt: skip
    """One step with `rates` as torch names them. False, and nothing done, where a count of steps is
    not one. Nothing fails here: what is half done can not be left to torch.
    """
    params, _, firsts, seconds, steps = lists
    lr, beta1, beta2, eps, weight_decay = (rates[name] for name in ADAM)
    roots = scratch.roots[: sum(parameter.numel() for parameter in params)]
    torch.autograd.graph.increment_version([*params, *firsts, *seconds, *steps])
    if not native.moments(is_fused, lr, beta1, beta2, eps, weight_decay, is_decoupled):
        return False
    roots.sqrt_()
    native.values()
    return True


def sgd(
    lists: Lists, native: _native.Sgd, rates: Rates, *, is_fused: bool, is_nesterov: bool
) -> bool:
    """The same; true."""
    params, _, firsts = lists
    lr, momentum, dampening, weight_decay = (rates[name] for name in SGD)
    torch.autograd.graph.increment_version([*params, *firsts])
    native.step(is_fused, lr, momentum, dampening, weight_decay, is_nesterov)
    return True


def are_plain(lists: Sequence[Any]) -> bool:
    """Whether all are lists of tensors that lie side by side in the processor's memory, in float32,
    of their parameter's shape, and few enough.
    """
    params, _, *states = lists
    if not all(type(each) in (list, tuple) for each in lists) or not params:
        return False
    shapes = [parameter.shape for parameter in params]
    steps = states.pop() if len(states) > 1 else ()
    return (
        0 < sum(parameter.numel() for parameter in params) <= MOST_ELEMENTS
        and all(
            all(map(_is_plain, each)) and [tensor.shape for tensor in each] == shapes
            for each in lists[: 2 + len(states)]
            if len(each)
        )
        and all(_is_plain(step) and step.numel() == 1 for step in steps)
    )


def are_usual(rates: Mapping[str, Any]) -> bool:
    """Whether they are numbers, as torch allows tensors as well, for which torch has no error, and
    that leave a part of each mean: what is all new has torch's sign of zero.
    """
    return all(
        isinstance(rate, (int, float)) and abs(rate) <= _LARGEST_RATE for rate in rates.values()
    ) and all(0 < rates.get(name, 0.5) < 1 for name in ("beta1", "beta2"))


def is_bare() -> bool:
    """Whether operations are just that: nobody records them, or stands between."""
    return not (
        torch.is_grad_enabled()
        or torch.is_inference_mode_enabled()
        or torch.compiler.is_compiling()
        or torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )


_KINDS = (torch.nn.Parameter, torch.Tensor)


def _is_plain(tensor: Any) -> bool:
    return (
        type(tensor) in _KINDS
        and tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_inference()  # torch may refuse to change one
    )
