"""Weights of recurrent layers that are copied."""

from torch import nn


def gather_weights(model: nn.Module) -> None:
    """Into one piece of memory for each layer. Deep copies have them one by one, and on a GPU cuDNN
    would gather them again in every call.
    """
    for part in model.modules():
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()
