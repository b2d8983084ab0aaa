"""What the torch at hand rounds where, found out by its own steps on a few numbers."""

import functools
from importlib import import_module
from typing import Any

import torch

from slipstream.run.updating import group

# Vectors of each length, and what is left behind them. In all no more than one thread of torch
# takes: the others keep settings that they are started with, which is for the script to do.
_SIZES = (*range(1, 34), 63, 64, 65, 1000)
_STEPS = 2
# beta1, weight_decay, whether weights decay by themselves
_ADAMS = ((0.9, 0.0, False), (0.9, 0.1, True), (0.3, 0.01, False))
# momentum, weight_decay, whether it is Nesterov's
_SGDS = ((0.0, 0.0, False), (0.9, 0.01, True))


@functools.cache
def is_fused() -> bool | None:
    """Whether products and sums are rounded together; None where it is otherwise than either."""
    for way in (True, False):
        if _is_equal(way):
            return way
    return None


def keeps_denormals() -> bool:
    """Whether this thread does. Where one flushes them, others may or may not, depending on when
    they were started.
    """
    return bool((torch.tensor(1e-40, dtype=torch.float32, device="cpu") * 1).item())


def _is_equal(way: bool) -> bool:
    own = torch.Generator("cpu").manual_seed(0)
    with torch.no_grad():
        return all(_adam_is_equal(way, own, *given) for given in _ADAMS) and all(
            _sgd_is_equal(way, own, *given) for given in _SGDS
        )


def _adam_is_equal(
    way: bool, own: torch.Generator, beta1: float, weight_decay: float, is_decoupled: bool
) -> bool:
    theirs = [_made(own), _zeros(), _zeros(), _counts()]
    ours = [[tensor.clone() for tensor in tensors] for tensors in theirs]
    scratch = group.Scratch()
    rates = {"lr": 0.01, "beta1": beta1, "beta2": 0.999, "eps": 1e-8, "weight_decay": weight_decay}
    for _ in range(_STEPS):
        grads = _made(own)
        values, firsts, seconds, steps = theirs
        _torchs("adam")._single_tensor_adam(
            values, grads, firsts, seconds, [], steps, grad_scale=None, found_inf=None,
            amsgrad=False, has_complex=False, maximize=False, capturable=False,
            differentiable=False, decoupled_weight_decay=is_decoupled, **rates,
        )  # fmt: skip
        values, *states = ours
        lists = values, grads, *states
        group.adam(
            lists, scratch.native(lists), scratch, rates, is_fused=way, is_decoupled=is_decoupled
        )
    return _are_equal(theirs, ours)


def _sgd_is_equal(
    way: bool, own: torch.Generator, momentum: float, weight_decay: float, is_nesterov: bool
) -> bool:
    theirs: list[list[torch.Tensor]] = [_made(own), _made(own) if momentum else []]
    ours = [[tensor.clone() for tensor in tensors] for tensors in theirs]
    rates = {"lr": 0.01, "momentum": momentum, "dampening": 0.1, "weight_decay": weight_decay}
    none: list[Any] = [None] * len(_SIZES)
    for _ in range(_STEPS):
        grads = _made(own)
        _torchs("sgd")._single_tensor_sgd(
            theirs[0], grads, theirs[1] or none, None, None, nesterov=is_nesterov,
            maximize=False, has_sparse_grad=False, **rates,
        )  # fmt: skip
        lists = ours[0], grads, ours[1]
        native = group.Scratch().native(lists)
        group.sgd(lists, native, rates, is_fused=way, is_nesterov=is_nesterov)
    return _are_equal(theirs, ours)


def _torchs(module: str) -> Any:
    return import_module(f"torch.optim.{module}")


def _made(own: torch.Generator) -> list[torch.Tensor]:
    """Numbers of very different sizes."""
    return [_normal(size, own) * torch.exp(2 * _normal(size, own)) for size in _SIZES]


def _normal(size: int, own: torch.Generator) -> torch.Tensor:
    return torch.randn(size, generator=own, dtype=torch.float32, device="cpu")


def _zeros() -> list[torch.Tensor]:
    return [torch.zeros(size, dtype=torch.float32, device="cpu") for size in _SIZES]


def _counts() -> list[torch.Tensor]:
    return [torch.zeros((), dtype=torch.float32, device="cpu") for _ in _SIZES]


def _are_equal(one: list[list[torch.Tensor]], other: list[list[torch.Tensor]]) -> bool:
    return all(
        torch.equal(a, b)
        for ones, others in zip(one, other, strict=True)
        for a, b in zip(ones, others, strict=True)
    )
