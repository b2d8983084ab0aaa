"""What a caller gives, checked."""

from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.infer.subject import expect_module


def expect_parts(model: Any, optimizer: Any, loss_fn: Any) -> None:
    """Raises `UsageError` for anything that no step can be made of."""
    expect_module(model)
    # Wrappers of other libraries are none of torch's, and do.
    if not all(hasattr(optimizer, name) for name in ("param_groups", "zero_grad", "step")):
        name = type(optimizer).__name__
        raise UsageError(f"optimizer is a {name}; expected a torch.optim.Optimizer.")
    if not callable(loss_fn):
        name = type(loss_fn).__name__
        raise UsageError(f"loss_fn is a {name}; expected a function of a model and a batch.")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError("LBFGS computes the loss several times in a step; a TrainStep does once.")
