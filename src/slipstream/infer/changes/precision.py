"""Fewer bits in between: inputs and outputs keep their type."""

from typing import Any

import torch
from torch import nn

from slipstream.infer.change import PRECISION, WITH_ONEDNN, Change
from slipstream.infer.leaves import changed, changed_arguments
from slipstream.infer.subject import Subject
from slipstream.processor import why_no
from slipstream.tf32 import with_tf32


class Autocast(nn.Module):
    """Calls a model under autocast; what it gives has the type that it had."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype
        self.device = device
        self._own = _types_of(model)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        with torch.autocast(self.device, self.dtype):
            result = self.model(*args, **kwargs)
        return changed(result, self._as_it_was)

    def _as_it_was(self, tensor: torch.Tensor) -> torch.Tensor:
        # Some layers have one type of few bits that they always take.
        is_made = tensor.dtype in _FEW_BITS and tensor.dtype not in self._own
        return tensor.float() if is_made else tensor


class Converted(nn.Module):
    """A model with weights of fewer bits."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model.to(dtype)
        self.dtype = dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives, as the type that it had."""
        args, kwargs = changed_arguments(
            args, kwargs, lambda t: t.to(self.dtype) if _is_float(t) else t
        )
        result = self.model(*args, **kwargs)
        return changed(result, lambda t: t.float() if t.dtype == self.dtype else t)


class Tf32(nn.Module):
    """Calls a model with TF32 in matrix products and convolutions."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        with with_tf32():
            return self.model(*args, **kwargs)


_FEW_BITS = (torch.bfloat16, torch.float16)


def _types_of(model: nn.Module) -> frozenset[torch.dtype]:
    return frozenset(t.dtype for t in (*model.parameters(), *model.buffers()))


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.float32


def _why_not(subject: Subject) -> str | None:
    if not any(_is_float(tensor) for tensor in subject.model.parameters()):
        return "no parameter is float32"
    return None


def _why_not_bf16(subject: Subject) -> str | None:
    """Where it is emulated, a call takes hundreds of times as long."""
    return (why_no("bf16") if subject.device.type == "cpu" else None) or _why_not(subject)


def _why_not_cuda(subject: Subject) -> str | None:
    if subject.device.type != "cuda":
        return "the model is not on a CUDA device"
    return _why_not(subject)


def _autocast(dtype: torch.dtype) -> Any:
    return lambda model, subject: Autocast(model, dtype, subject.device.type)


BF16_AUTOCAST = Change(
    "bf16 autocast", "mixed", PRECISION, _autocast(torch.bfloat16), _why_not_bf16, WITH_ONEDNN
)
BF16 = Change(
    "bf16", "mixed", PRECISION, lambda model, _: Converted(model, torch.bfloat16), _why_not_bf16,
    WITH_ONEDNN,
)  # fmt: skip
FP16_AUTOCAST = Change("fp16 autocast", "mixed", PRECISION, _autocast(torch.float16), _why_not_cuda)
FP16 = Change(
    "fp16", "mixed", PRECISION, lambda model, _: Converted(model, torch.float16), _why_not_cuda
)
TF32 = Change("tf32", "mixed", PRECISION, lambda model, _: Tf32(model), _why_not_cuda)
