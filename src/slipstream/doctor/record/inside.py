"""One call of a model, looked into: what its layers are given. Only once or twice in a run."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from slipstream.doctor.record.batches import is_dense
from slipstream.doctor.record.places import users_place

_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
_MOST_LAYERS = 2000


@dataclass
class Layer:
    """A layer as it was called."""

    name: str
    module: Any
    where: str | None
    inputs: tuple[Any, ...]
    input_needs_grad: bool
    got_gradient: bool = True  # judged right behind the backward pass


@dataclass
class Inside:
    """What was seen. Holds tensors: to be let go after the step."""

    called: dict[str, Layer] = field(default_factory=dict)
    # Convolutions, and batch norms that are given just what a convolution has made.
    folds: list[tuple[str, str]] = field(default_factory=list)


def can_look_inside(module: Any) -> bool:
    """Hooks would make compiled code be compiled again, and scripted code has none."""
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        return False
    parts = list(module.modules())
    return len(parts) <= _MOST_LAYERS and not any(
        hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) is not None
        for part in parts
    )


@contextmanager
def looking_inside(module: Any) -> Iterator[Inside]:
    """Notes the calls of the layers of `module` meanwhile."""
    seen = Inside()
    made_by: dict[int, tuple[weakref.ref[Any], str]] = {}
    handles: list[Any] = []

    def before(name: str) -> Any:
        def note(layer: Any, args: tuple[Any, ...]) -> None:
            first = args[0] if args else None
            needs_grad = isinstance(first, torch.Tensor) and first.requires_grad
            seen.called.setdefault(name, Layer(name, layer, users_place(), args, needs_grad))
            if isinstance(layer, _NORMS) and args and id(args[0]) in made_by:
                made, maker = made_by[id(args[0])]
                if made() is args[0]:
                    seen.folds.append((maker, name))

        return note

    def after(name: str) -> Any:
        def note(layer: Any, args: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):  # classes of the user's may give more than one
                made_by[id(output)] = (weakref.ref(output), name)

        return note

    for name, part in module.named_modules():
        if name and not isinstance(part, torch.jit.ScriptModule):
            handles.append(part.register_forward_pre_hook(before(name)))
            if isinstance(part, _CONVOLUTIONS):
                handles.append(part.register_forward_hook(after(name)))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def is_convolution(layer: Layer) -> bool:
    """Whether its time depends on how its input lies in memory."""
    return (
        isinstance(layer.module, _CONVOLUTIONS)
        and bool(layer.inputs)
        and isinstance(layer.inputs[0], torch.Tensor)
        and layer.inputs[0].layout == torch.strided
    )


def layout_of(tensor: torch.Tensor) -> str:
    """ "contiguous", "channels_last", or "other"."""
    if tensor.is_contiguous():
        return "contiguous"
    return "channels_last" if is_dense(tensor) else "other"
