"""Parts of a model: one put in the place of another, and how large they are."""

from torch import nn


def replaced(
    model: nn.Module, old: nn.Module, new: nn.Module, outside: nn.Module | None = None
) -> nn.Module:
    """The model with one part for another wherever it stands, but not within `outside`."""
    if model is old:
        return new
    for part in list(model.modules()):
        if part is new or part is outside:
            continue
        for name, child in part._modules.items():
            if child is old:
                part._modules[name] = new
    return model


def bytes_of(model: nn.Module) -> int:
    """Of its parameters and buffers; what is shared counts once."""
    return sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
