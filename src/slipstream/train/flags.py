"""torch's switches of a GPU, for as long as a step takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from slipstream.train.choices import Choices

_PARTS = ("conv", "rnn")  # of cuDNN


@contextmanager
def flags_of(choices: Choices) -> Iterator[None]:
    """As chosen inside, as before behind."""
    before: list[tuple[Any, str, Any]] = []
    if choices.cudnn_benchmark:
        before.append((torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark))
        torch.backends.cudnn.benchmark = True
    if choices.precision == "tf32":
        before += _allow_tf32()
    try:
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)


def tf32_of(place: Any) -> bool:
    """Whether `torch.backends.cudnn` or `torch.backends.cuda.matmul` has it on. torch refuses to
    say so where it was set by `fp32_precision`.
    """
    try:
        return bool(place.allow_tf32)
    except RuntimeError:
        return bool(getattr(place, "fp32_precision", "") == "tf32")


def _allow_tf32() -> list[tuple[Any, str, Any]]:
    """Returns what was there, to be set again in this order: newer names last, as torch wants both
    to agree.
    """
    backends: Any = torch.backends
    old: list[tuple[Any, str, Any]] = []
    new: list[tuple[Any, str, Any]] = []
    for place in (backends.cuda.matmul, backends.cudnn):
        try:
            old.append((place, "allow_tf32", place.allow_tf32))
        except RuntimeError:  # set by the newer name, and to be kept so
            continue
    for place in (backends.cuda.matmul, *(getattr(backends.cudnn, n, None) for n in _PARTS)):
        if hasattr(place, "fp32_precision"):
            new.append((place, "fp32_precision", place.fp32_precision))
    for place, name, _ in old:
        setattr(place, name, True)
    if len(old) < 2:
        for place, name, _ in new:
            setattr(place, name, "tf32")
    return [*old, *new]
