"""Whether torch computes layers of a transformer in another way when nobody looks."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from slipstream.infer.subject import Subject

_LAYERS = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)
_OPERATORS = ("aten::_native_multi_head_attention", "aten::_transformer_encoder_layer_fwd")


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found = self.found or func._schema.name in _OPERATORS
        return func(*args, **(kwargs or {}))


def takes_fast_path(subject: Subject) -> bool:
    """Gradients are off where this is called, and the model has no hooks of a recording: with
    either, torch computes the layers one by one.
    """
    if not any(isinstance(part, _LAYERS) for part in subject.model.modules()):
        return False
    seen = _Seen()  # type: ignore[no-untyped-call]
    try:
        with seen:
            subject.inputs(subject.model)
    except Exception:  # as nested tensors, which it makes of padded ones, may do here
        return True
    return seen.found
