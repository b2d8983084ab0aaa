"""`channels-last`: convolutions get the channels of a pixel side by side.

Their weights are laid so in place when a model is first called with pictures, and pictures that it
is given are; pictures that it returns are laid as without. A model whose own code asks for the
usual order (`.view` behind a convolution) fails in its first call of a kind: that is made again as
written, and the weights are put back.
"""

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from slipstream.doctor.rules.replayed import compare
from slipstream.run.evaluating.purity import signature
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.outermost import Before, Outermost, map_tensors, tensors_of

NAME = "channels-last"
RULES = ("channels-last", "nchw-on-tensor-cores")
_MOST_KINDS = 256
_KINDS = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)


def applies(situation: Situation) -> tuple[bool, str]:
    """Where a copy of the model was measured to be faster; on devices also where it could not be
    measured.
    """
    models = [
        facts
        for facts in situation.capture.model.get("models", ())
        if facts["convolutions"] > facts["channels_last_weights"]
        and not facts["is_distributed"]
        and any(len(given["shape"]) == 4 for given in facts["inputs"])
    ]
    if not models:
        return False, "no convolutions of pictures in the usual order"
    measured = [
        compare(entry) for entry in situation.capture.replays if entry["name"] == "channels-last"
    ]
    if any(comparison.is_sure for comparison in measured):
        return True, f"{models[0]['class']} was measured to be faster so"
    if measured or not situation.on_device:
        return False, "not measured to be faster"
    return True, f"{models[0]['class']} has {models[0]['convolutions']} convolutions"


def apply(situation: Situation) -> Undo:
    """To models that the script calls."""
    layout = _Layout(situation)
    outermost = Outermost(layout.around)
    outermost.start()

    def undo() -> None:
        outermost.undo()
        layout.put_back()

    return undo


@dataclass
class _Laid:
    """A model whose weights lie so."""

    strides: dict[Any, tuple[int, ...]]  # {parameter: as it was}
    works: set[Any] = field(default_factory=set)  # kinds of calls


class _Layout:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        # None: left alone
        self._known: weakref.WeakKeyDictionary[Any, _Laid | None] = weakref.WeakKeyDictionary()

    def around(self, module: Any, call: Any, args: Any, kwargs: Any) -> Any:
        """A call by the script."""
        laid = self._known.get(module)
        if laid is None:
            if module in self._known or not _has_pictures(module, args, kwargs):
                return call(*args, **kwargs)
            laid = self._known[module] = _Laid(_lay(module))
            convolutions = len(laid.strides)
            self._situation.note(NAME, f"{type(module).__name__}: {convolutions} convolutions")
        kind = (signature(module, (args, kwargs)), module.training, torch.is_grad_enabled())
        if kind in laid.works:
            return _with_order(call, args, kwargs)
        return self._watched(module, laid, kind, call, args, kwargs)

    def put_back(self) -> None:
        """All weights, as they lay."""
        for module in list(self._known):
            laid = self._known.pop(module)
            if laid is not None:
                _lay_back(laid.strides)

    def _watched(
        self, module: Any, laid: _Laid, kind: Any, call: Any, args: Any, kwargs: Any
    ) -> Any:
        before = Before(module)
        try:
            result = _with_order(call, args, kwargs)
        except Exception as error:
            _lay_back(laid.strides)
            before.restore()
            self._known[module] = None
            line = f"{type(module).__name__} is left alone: {str(error).partition(chr(10))[0]}"
            self._situation.note(NAME, line, left=True)
            return call(*args, **kwargs)  # an error of the script's own comes again
        if len(laid.works) < _MOST_KINDS:
            laid.works.add(kind)
        return result


def _has_pictures(module: Any, args: Any, kwargs: Any) -> bool:
    return (
        not hasattr(module, "_orig_mod")
        and any(isinstance(part, _KINDS) for part in module.modules())
        and any(_is_picture(tensor) for tensor in tensors_of((args, kwargs)))
    )


def _is_picture(tensor: torch.Tensor) -> bool:
    return tensor.ndim == 4 and tensor.is_floating_point() and tensor.layout is torch.strided


def _with_order(call: Any, args: Any, kwargs: Any) -> Any:
    args, kwargs = map_tensors(_last, (args, kwargs))
    return map_tensors(_usual, call(*args, **kwargs))


def _last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if _is_picture(tensor) else tensor


def _usual(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous() if _is_picture(tensor) else tensor


def _lay(module: Any) -> dict[Any, tuple[int, ...]]:
    strides: dict[Any, tuple[int, ...]] = {}
    for part in module.modules():
        weight = part.weight if isinstance(part, _KINDS) else None
        if type(weight) is torch.nn.Parameter and weight.is_contiguous():
            strides[weight] = weight.stride()
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return strides


def _lay_back(strides: dict[Any, tuple[int, ...]]) -> None:
    for weight, stride in strides.items():
        usual = torch.empty_strided(weight.shape, stride, dtype=weight.dtype, device=weight.device)
        weight.data = usual.copy_(weight.data)


FIX = Fix(NAME, "N", "convolutions get channels side by side", RULES, applies, apply)
