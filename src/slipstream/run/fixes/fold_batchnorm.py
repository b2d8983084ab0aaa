"""`fold-batchnorm`: in evaluation, batch norms become part of the convolutions before them.

A convolution computes with folded weights, and its batch norm lets through what it gets, while a
model in evaluation mode is called without gradients; the modules themselves stay as they are. The
weights are folded anew when anything may have changed them: a step of an optimizer, a call of a
model that learns, `train()`, `eval()`, `load_state_dict`, `.data`, or their own version. The first
call of each kind is made both ways: the results must agree to `CLOSE` of their largest value.
Before every call it is looked whether they can be folded still: a norm that learns, a hook, or an
array that has the memory of a weight leaves the call as it is.
"""

import math
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torch.optim.optimizer import register_optimizer_step_post_hook

from slipstream.doctor.record.inside import can_look_inside, looking_inside
from slipstream.doctor.rules.replayed import compare
from slipstream.patches import Patches
from slipstream.run.evaluating.purity import has_hooks, signature
from slipstream.run.evaluating.speech import says_something
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.outermost import Outermost, tensors_of

NAME = "fold-batchnorm"
CLOSE = 1e-3
_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
_MOST_KINDS = 16
_CHANGES = ("train", "load_state_dict", "_apply")


def applies(situation: Situation) -> tuple[bool, str]:
    """Where a copy of the model was measured to be faster so."""
    measured = [entry for entry in situation.capture.replays if entry["name"] == "folded"]
    if not measured:
        return False, "no model that only evaluates has batch norms behind convolutions"
    if not any(compare(entry).is_sure for entry in measured):
        return False, "not measured to be faster"
    return True, f"{measured[0]['folds']} batch norms follow a convolution"


def apply(situation: Situation) -> Undo:
    """To models that the script calls."""
    folding = _Folding(situation)
    outermost = Outermost(folding.around)
    outermost.start()
    patches = Patches()
    for name in _CHANGES:
        patches.replace(torch.nn.Module, name, folding.wrap_change)
    # What is written there changes no version.
    patches.replace(torch.Tensor, "data", folding.wrap_data, disguised=False)
    handle = register_optimizer_step_post_hook(lambda *_: folding.forget())

    def undo() -> None:
        handle.remove()
        outermost.undo()
        patches.undo()
        folding.forget()

    return undo


@dataclass
class _Pair:
    """A convolution with the batch norm behind it, and what they are together."""

    convolution: Any
    norm: Any
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    made_of: tuple[Any, ...] = ()

    def _tensors(self) -> tuple[Any, ...]:
        norm, convolution = self.norm, self.convolution
        return (
            convolution.weight, convolution.bias, norm.weight, norm.bias, norm.running_mean,
            norm.running_var,
        )  # fmt: skip

    def versions(self) -> tuple[Any, ...]:
        tensors = self._tensors()
        own = tuple(None if t is None else (t.data_ptr(), t._version) for t in tensors)
        return (*own, self.norm.eps)

    def is_shared(self) -> bool:
        """Whether an array has, or had, the memory of a weight: what is written there counts in no
        version.
        """
        return any(t is not None and not t.untyped_storage().resizable() for t in self._tensors())

    def is_made_of(self, tensor: Any) -> bool:
        return any(tensor is own for own in self._tensors())

    def fold(self) -> None:
        norm, convolution = self.norm, self.convolution
        self.made_of = self.versions()
        weight, bias = fuse_conv_bn_weights(
            convolution.weight, convolution.bias, norm.running_mean, norm.running_var, norm.eps,
            norm.weight, norm.bias,
        )  # fmt: skip
        self.weight, self.bias = weight.detach(), bias.detach()


@dataclass
class _Model:
    """Weak in all but the pairs, which are parts of it: it lives as long as the model."""

    names: list[tuple[str, str]]
    are_close: dict[Any, bool] = field(default_factory=dict)
    pairs: list[_Pair] = field(default_factory=list)


class _Folding:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._models: weakref.WeakKeyDictionary[Any, _Model] = weakref.WeakKeyDictionary()
        self._is_within = False

    def around(self, module: Any, call: Any, args: Any, kwargs: Any) -> Any:
        """A call by the script."""
        if module.training or torch.is_grad_enabled():
            if module.training:
                self.forget()
            return call(*args, **kwargs)
        if NAME in self._situation.failures:
            return call(*args, **kwargs)
        model = self._models.get(module)
        if model is None:
            return self._look(module, call, args, kwargs)
        if not model.names or not self._can_be_folded_now(module, model):
            return call(*args, **kwargs)
        kind = signature(module, (args, kwargs))
        if kind not in model.are_close:
            return self._compare(module, model, kind, call, args, kwargs)
        if not model.are_close[kind]:
            return call(*args, **kwargs)
        return self._folded(model, call, args, kwargs)

    def wrap_change(self, original: Any) -> Any:
        def change(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.forget()
            return original(module, *args, **kwargs)

        return change

    def wrap_data(self, original: Any) -> Any:
        """Of an attribute."""

        def get(tensor: Any) -> Any:
            self._forget_what_is_made_of(tensor)
            return original.__get__(tensor)

        def put(tensor: Any, value: Any) -> None:
            self._forget_what_is_made_of(tensor)
            original.__set__(tensor, value)

        return property(get, put)

    def _forget_what_is_made_of(self, tensor: Any) -> None:
        """Results are read by `.data` as well, in every step of an evaluation."""
        for model in list(self._models.values()):
            if any(pair.is_made_of(tensor) for pair in model.pairs):
                self.forget()
                return

    def forget(self) -> None:
        """All folded weights: those that they are made of may be others now."""
        if not self._is_within:
            for model in list(self._models.values()):
                model.pairs.clear()

    def _look(self, module: Any, call: Any, args: Any, kwargs: Any) -> Any:
        if not can_look_inside(module) or has_hooks(module) or says_something(module):
            self._models[module] = _Model([])
            return call(*args, **kwargs)
        with looking_inside(module) as seen:
            result = call(*args, **kwargs)
        counts = {name: sum(name in pair for pair in seen.folds) for p in seen.folds for name in p}
        names = [
            (conv, norm)
            for conv, norm in seen.folds
            if counts[conv] == counts[norm] == 1
            and _can_be_folded(module.get_submodule(conv), module.get_submodule(norm))
        ]
        self._models[module] = _Model(names)
        return result

    def _can_be_folded_now(self, module: Any, model: _Model) -> bool:
        try:
            parts = [
                (module.get_submodule(conv), module.get_submodule(norm))
                for conv, norm in model.names
            ]
        except AttributeError:  # taken out of the model
            return False
        if not all(_can_be_folded(*pair) and not _is_looked_at(*pair) for pair in parts):
            return False
        if not _are_same(model.pairs, parts):
            model.pairs = [_Pair(*pair) for pair in parts]
        if any(pair.is_shared() for pair in model.pairs):
            line = "left alone: arrays share the memory of its weights"
            self._situation.note(NAME, line, left=True)
            return False
        return True

    def _compare(
        self, module: Any, model: _Model, kind: Any, call: Any, args: Any, kwargs: Any
    ) -> Any:
        result = call(*args, **kwargs)
        if len(model.are_close) >= _MOST_KINDS:
            return result
        try:
            apart = _apart(result, self._folded(model, call, args, kwargs))
        except Exception as error:
            model.names.clear()
            self._situation.give_up(NAME, error)
            return result
        is_close = model.are_close[kind] = apart <= CLOSE
        what = f"{len(model.names)} in {type(module).__name__}" if is_close else "left alone"
        line = f"{what}: results differ by {apart:.1e} of the largest"
        self._situation.note(NAME, line, left=not is_close)
        return result

    def _folded(self, model: _Model, call: Any, args: Any, kwargs: Any) -> Any:
        put: list[Any] = []
        self._is_within = True
        try:
            for pair in model.pairs:
                if pair.made_of != pair.versions():
                    pair.fold()
                pair.convolution.forward = _computing(pair)
                pair.norm.forward = _letting_through
                put += [pair.convolution, pair.norm]
            return call(*args, **kwargs)
        finally:
            self._is_within = False
            for part in put:
                del part.forward


def _computing(pair: _Pair) -> Any:
    convolution = pair.convolution

    def forward(given: torch.Tensor) -> Any:
        return convolution._conv_forward(given, pair.weight, pair.bias)

    return forward


def _letting_through(given: torch.Tensor) -> torch.Tensor:
    return given


def _can_be_folded(convolution: Any, norm: Any) -> bool:
    return (
        type(convolution) in _CONVOLUTIONS
        and "forward" not in vars(convolution)
        and "forward" not in vars(norm)
        and type(norm).__module__ == "torch.nn.modules.batchnorm"
        and norm.running_mean is not None
        and not norm.training
        and type(convolution.weight) is torch.nn.Parameter
        and convolution.weight.dtype == norm.running_mean.dtype
    )


def _is_looked_at(*parts: Any) -> bool:
    """Whether hooks would see what a folded pair has between its parts."""
    return any(has_hooks(part) for part in parts)


def _are_same(pairs: list[_Pair], parts: list[tuple[Any, Any]]) -> bool:
    return len(pairs) == len(parts) and all(
        pair.convolution is convolution and pair.norm is norm
        for pair, (convolution, norm) in zip(pairs, parts, strict=True)
    )


def _apart(one: Any, other: Any) -> float:
    """The greatest difference of two results, as a share of their largest value."""
    worst = 0.0
    for a, b in zip(tensors_of(one), tensors_of(other), strict=True):
        if not a.is_floating_point():
            continue
        largest = float(a.abs().max()) if a.numel() else 0.0
        if largest:
            difference = float((a.double() - b.double()).abs().max()) / largest
            worst = max(worst, math.inf if math.isnan(difference) else difference)
    return worst


FIX = Fix(
    NAME, "N", "batch norms are folded in evaluation", ("unfolded-batchnorm",), applies, apply
)
