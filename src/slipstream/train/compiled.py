"""A model that is called through torch.compile."""

from typing import Any

import torch
from torch import nn

from slipstream.infer.changes.compiled import function_of, why_no_compiler


class CompiledModel(nn.Module):
    """Stands for a model in a call of `loss_fn`: calls go through its compiled form, attributes and
    parameters are the model's own. The model itself stays as written for whoever else calls it.
    """

    def __init__(self, model: nn.Module, mode: str | None = None) -> None:
        super().__init__()
        del self.training  # so that the model is asked
        self._orig_mod = model
        self._call: Any = torch.compile(function_of(model), mode=mode)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_mod"), name)


def why_not(model: nn.Module, device: torch.device) -> str | None:
    """Why a model cannot be compiled here; None where nothing speaks against it."""
    if any(hasattr(part, "_orig_mod") or part._compiled_call_impl for part in model.modules()):
        return "it is compiled already"
    return why_no_compiler(device)
