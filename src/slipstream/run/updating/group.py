"""A group of parameters in one native call, where torch makes some calls for each of them.

What is rounded where is the same; `arithmetic` asks whether that holds for the torch at hand.
"""

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from slipstream import _native

MOST_ELEMENTS = 2_000_000  # one thread works on them; torch takes more where there are more
_MOST_KNOWN = 256

Tensors = Sequence[torch.Tensor]
Rates = Mapping[str, float]
ADAM = ("lr", "beta1", "beta2", "eps", "weight_decay")
SGD = ("lr", "momentum", "dampening", "weight_decay")


class Scratch(threading.local):
    """Of each thread: memory that holds nothing between steps, and where the tensors of a group lay
    in the last one, as most lie there again.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], _Group] = {}

    def group(self, counts: list[int]) -> "_Group":
        """For parameters of these sizes."""
        key = tuple(counts)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = _Group(counts)
        return found


class _Group:
    def __init__(self, counts: list[int]) -> None:
        self._counts = counts
        self._places: list[int] = []
        self._native: _native.Adam | None = None
        # Side by side, so that their roots are one call.
        self.roots = torch.empty(sum(counts), dtype=torch.float32, device="cpu")
        ends = itertools.accumulate(counts, initial=0)
        self._roots = [self.roots.data_ptr() + 4 * end for end in ends][:-1]

    def at(self, lists: Sequence[Tensors]) -> "_native.Adam | None":
        """None where they share memory."""
        places = [tensor.data_ptr() for tensors in lists for tensor in tensors]
        if places == self._places:
            return self._native
        each = len(self._counts)
        parts = [places[first : first + each] for first in range(0, len(places), each)]
        values, gradients, firsts, seconds, steps = parts
        made = _native.Adam(
            self._counts, values, gradients, firsts, seconds, self._roots, steps
        )  # fmt: skip
        self._places, self._native = places, made if made.lies_apart() else None
        return self._native


def adam(
    lists: Sequence[Tensors], scratch: Scratch, rates: Rates, *, is_fused: bool, is_decoupled: bool
) -> bool:
    """One step with `rates` as torch names them; `lists` are parameters, gradients, both means and
    counts of steps. False, and nothing done, where tensors share memory.
    """
    params, _, firsts, seconds, steps = lists
    group = scratch.group([p.numel() for p in params])
    native = group.at(lists)
    if native is None:
        return False
    torch.autograd.graph.increment_version([*params, *firsts, *seconds, *steps])
    lr, beta1, beta2, eps, weight_decay = (rates[name] for name in ADAM)
    native.moments(is_fused, lr, beta1, beta2, eps, weight_decay, is_decoupled)
    group.roots.sqrt_()
    native.values()
    return True


def sgd(lists: Sequence[Tensors], rates: Rates, *, is_fused: bool, is_nesterov: bool) -> bool:
    """The same; `lists` are parameters, gradients, and momentum where there is some."""
    params, grads, firsts = lists
    counts = [p.numel() for p in params]
    torch.autograd.graph.increment_version([*params, *firsts])
    lr, momentum, dampening, weight_decay = (rates[name] for name in SGD)
    return _native.update_by_sgd(
        counts, _places(params), _places(grads), _places(firsts), is_fused, lr, momentum,
        dampening, weight_decay, is_nesterov,
    )  # fmt: skip


def are_plain(lists: Sequence[Sequence[Any]]) -> bool:
    """Whether all lie side by side in the processor's memory, in float32, each as large as its
    parameter.
    """
    params, grads, *others = lists
    if not params:
        return False  # no gradient came
    counts = [p.numel() for p in params]
    states = [each for each in others if len(each)]
    steps = states.pop() if len(others) > 1 else ()
    return (
        0 < sum(counts) <= MOST_ELEMENTS
        and all(map(_is_usual, grads))
        and all(map(_is_plain, params))
        and all(
            all(map(_is_plain, each)) and [tensor.numel() for tensor in each] == counts
            for each in (grads, *states)
        )
        and all(_is_plain(step) and step.numel() == 1 for step in steps)
    )


_KINDS = (torch.nn.Parameter, torch.Tensor)


def _is_plain(tensor: Any) -> bool:
    return (
        type(tensor) in _KINDS
        and tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.is_contiguous()
    )


def _is_usual(gradient: Any) -> bool:
    return gradient.layout is torch.strided and not gradient.is_neg()


def _places(tensors: Tensors) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]
