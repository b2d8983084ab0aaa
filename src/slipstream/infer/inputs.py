"""What a model is called with: arguments by place and by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.infer.leaves import changed, tensors_of


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
    wrong. Floating-point numbers get noise of half their spread; rows of whole numbers and flags
    change places, as a model may look them up.
    """
    own = torch.Generator().manual_seed(seed)

    def shuffle(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() < 2:
            return tensor.detach().clone()
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=own, dtype=torch.float32).to(tensor.device)
            spread = tensor.detach().float().std(correction=0)
            return (tensor.detach() + (noise * spread).to(tensor.dtype) * 0.5).clone()
        if tensor.dim() and tensor.shape[0] > 1:
            order = torch.randperm(tensor.shape[0], generator=own).to(tensor.device)
            return tensor.detach()[order].clone()
        return tensor.detach().clone()

    return inputs.map(shuffle)
