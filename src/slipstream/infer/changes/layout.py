"""Changes of graph and layout: the same model, arranged otherwise."""

from typing import Any

import torch
from torch import nn

from slipstream.infer.change import GRAPH, LAYOUT, Change
from slipstream.infer.fold import fold, folds_of
from slipstream.infer.leaves import changed, changed_arguments
from slipstream.infer.subject import Subject

_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")


class ChannelsLast(nn.Module):
    """Gives a model pictures whose channels lie side by side."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives; converting the inputs is a part of it."""
        args, kwargs = changed_arguments(args, kwargs, _with_channels_last)
        return changed(self.model(*args, **kwargs), _without)


def _with_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def _without(result: torch.Tensor) -> torch.Tensor:
    """Callers may take views of it."""
    is_ours = result.dim() == 4 and result.is_contiguous(memory_format=torch.channels_last)
    return result.contiguous() if is_ours else result


def _why_no_layout(subject: Subject) -> str | None:
    if not subject.count("Conv2d", "ConvTranspose2d"):
        return "there is no 2-d convolution"
    return None


def _why_no_fold(subject: Subject) -> str | None:
    if not subject.count(*_NORMS):
        return "there is no batch norm"
    if not folds_of(subject.model, subject.inputs):
        return "no batch norm stands alone behind one convolution or linear layer"
    return None


def _folded(model: nn.Module, subject: Subject) -> nn.Module:
    fold(model, folds_of(model, subject.inputs))
    return model


FOLD = Change("fold", "exact", GRAPH, _folded, _why_no_fold)
CHANNELS_LAST = Change(
    "channels-last", "exact", LAYOUT, lambda model, _: ChannelsLast(model), _why_no_layout
)
