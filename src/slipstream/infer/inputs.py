"""What a model is called with: arguments by place and by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.infer.leaves import changed, tensors_of

_TURNED = 0.25  # of flags, and of numbers that become nothing


@dataclass(frozen=True)
class Inputs:
    """Arguments of one call. `inputs(model)` makes it."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, model: Any) -> Any:
        """What the model gives for them."""
        return model(*self.args, **self.kwargs)

    def tensors(self) -> list[torch.Tensor]:
        """All of them."""
        return tensors_of((self.args, dict(self.kwargs)))

    def map(self, change: Any) -> "Inputs":
        """With other tensors."""
        args, kwargs = changed((self.args, dict(self.kwargs)), change)
        return Inputs(args, kwargs)

    def copy(self) -> "Inputs":
        """With tensors of its own, laid out as they are."""
        return self.map(lambda tensor: tensor.detach().clone())

    def copy_shared_as(self, example: "Inputs") -> "Inputs":
        """The same, but one tensor where the example gives one for several arguments: attention of
        a sequence to itself goes another way then.
        """
        known = [id(tensor) for tensor in example.tensors()]
        own = self.copy().tensors()
        given = iter([own[known.index(one)] for one in known])
        return self.map(lambda tensor: next(given))


def inputs_of(example: Any) -> Inputs:
    """A tensor is one argument, a tuple or list several, a dict arguments by name.

    >>> inputs_of({"ids": torch.zeros(2)}).kwargs.keys()
    dict_keys(['ids'])
    """
    if isinstance(example, Inputs):
        return example
    if isinstance(example, torch.Tensor):
        return Inputs((example,))
    if isinstance(example, Mapping):
        if not all(isinstance(name, str) for name in example):
            return Inputs((dict(example),))
        return Inputs((), dict(example))
    if isinstance(example, tuple | list):
        return Inputs(tuple(example))
    raise UsageError(
        f"example_inputs is a {type(example).__name__}; expected a tensor, a tuple of arguments, "
        "or a dict of arguments by name."
    )


def other_values(inputs: Inputs, seed: int) -> Inputs:
    """The same shapes and types with other values: what a model that only remembers an answer gets
    wrong. Floating-point numbers get noise of half their spread, those that are not finite stay;
    whole numbers change places, as a model may look them up; some flags turn into the other, and
    so do ones where there is nothing else: masks are written in numbers, too.
    """
    own = torch.Generator("cpu").manual_seed(seed)

    def other(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach().clone()
        if tensor.is_floating_point():
            return _with_noise(tensor, own)
        if tensor.dtype == torch.bool:
            return tensor ^ _some(tensor, own)
        if _are_flags(tensor):
            return tensor.masked_fill(_some(tensor, own), 0)
        for dim, size in enumerate(tensor.shape):
            if size > 1:
                order = torch.randperm(size, generator=own, device="cpu").to(tensor.device)
                return tensor.index_select(dim, order)
        return tensor

    return inputs.map(other)


def times(inputs: Inputs, factor: float) -> Inputs:
    """With floating-point numbers so many times as large."""
    return inputs.map(
        lambda tensor: tensor.detach() * factor if tensor.is_floating_point() else tensor
    )


def with_zeros(inputs: Inputs, seed: int) -> Inputs:
    """With some of the floating-point numbers nothing at all, as padding is."""
    own = torch.Generator("cpu").manual_seed(seed)

    def other(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor.detach()
        return tensor.detach().masked_fill(_some(tensor, own), 0)

    return inputs.map(other)


def masked(inputs: Inputs) -> Inputs:
    """With the first half of all flags, and of ones where there is nothing else, turned off: of
    whole samples, where there are several.
    """

    def other(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach().clone()
        if tensor.dim() and _are_flags(tensor):
            tensor[: (len(tensor) + 1) // 2] = 0
        return tensor

    return inputs.map(other)


def _are_flags(tensor: torch.Tensor) -> bool:
    if tensor.dtype == torch.bool:
        return True
    is_whole = not (tensor.is_floating_point() or tensor.is_complex())
    return is_whole and tensor.numel() > 1 and bool((tensor == 1).all())


def _some(tensor: torch.Tensor, own: torch.Generator) -> torch.Tensor:
    return torch.rand(tensor.shape, generator=own, device="cpu").to(tensor.device) < _TURNED


def _with_noise(tensor: torch.Tensor, own: torch.Generator) -> torch.Tensor:
    finite = torch.isfinite(tensor)
    values = tensor.float()[finite]
    if not values.numel():
        return tensor
    spread = values.std(correction=0)
    if not spread > 0:
        spread = values.abs().mean()
    if not spread > 0:  # zeros: any other values will do
        spread = torch.ones_like(spread)
    noise = torch.randn(tensor.shape, generator=own, dtype=torch.float32, device="cpu")
    return torch.where(
        finite, tensor + (noise.to(tensor.device) * spread * 0.5).to(tensor.dtype), tensor
    )
