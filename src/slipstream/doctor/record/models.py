"""Facts about the modules that a loop calls."""

import weakref
from typing import Any

import torch

from slipstream.doctor.record.batches import is_dense

_LOOKED_AT = 3  # calls of a model whose inputs are described


class ModelFacts:
    """Knows the outermost modules that were called."""

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._models: dict[int, Any] = {}
        self.found: list[dict[str, Any]] = []

    def note(self, module: Any, args: tuple[Any, ...]) -> int:
        """A call of this module; its number."""
        number = self._numbers.get(module)
        if number is None:
            number = self._numbers[module] = len(self.found)
            self._models[number] = weakref.ref(module)
            self.found.append(_describe(module))
        facts = self.found[number]
        if facts["calls"] < _LOOKED_AT:
            facts["inputs"] = [_input(a) for a in args if isinstance(a, torch.Tensor)]
        facts["calls"] += 1
        return number

    def module(self, number: int) -> Any:
        """The module itself, while it lives."""
        return self._models[number]()


def _input(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()) if tensor.layout == torch.strided else None,
        "dense": tensor.layout == torch.strided and is_dense(tensor),
        "channels_last": tensor.ndim == 4
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous(),
        "device": tensor.device.type,
        "requires_grad": tensor.requires_grad,
    }


def _describe(module: Any) -> dict[str, Any]:
    kinds: dict[str, int] = {}
    for part in module.modules():
        kind = type(part).__name__
        kinds[kind] = kinds.get(kind, 0) + 1
    parameters = list(module.parameters())
    convolutions = [m for m in module.modules() if type(m).__name__ in ("Conv2d", "Conv3d")]
    last = sum(
        m.weight.ndim == 4 and m.weight.is_contiguous(memory_format=torch.channels_last)
        and not m.weight.is_contiguous()
        for m in convolutions
    )  # fmt: skip
    return {
        "class": type(module).__name__,
        "is_loss": not parameters and "Loss" in type(module).__name__,
        "compiled": hasattr(module, "_orig_mod"),
        "kinds": kinds,
        "parameters": len(parameters),
        "elements": sum(p.numel() for p in parameters),
        "trainable": sum(p.requires_grad for p in parameters),
        "dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in parameters}),
        "convolutions": len(convolutions),
        "channels_last_weights": last,
        "calls": 0,
        "inputs": [],
    }
