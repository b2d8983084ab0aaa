"""`autocast`: forward passes compute in bfloat16 where torch's list says that it does.

Calls of models by the script, while they learn, run under torch.autocast; what they return in
bfloat16 is float32 for the script, which computes its loss as before. Weights, gradients and the
optimizer stay in float32. Evaluation stays as it is. Scripts that choose a precision themselves are
left alone. So is attention over few keys on a processor: torch's kernel for its backward pass takes
up to five times as long in bfloat16 as in float32.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from slipstream.doctor.rules.replayed import compare
from slipstream.patches import Patches
from slipstream.processor import why_no
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.outermost import Outermost, Tries, device_of, map_tensors

NAME = "autocast"
_FEW_KEYS = 256  # from here on bfloat16 is the faster one
_PLAIN = (torch.Tensor, int, float, bool, str, bytes, type(None))


def applies(situation: Situation) -> tuple[bool, str]:
    """For models in float32 on a device, unless it was measured to gain nothing; on a processor
    where it computes in bfloat16 itself.
    """
    models = [
        facts
        for facts in situation.capture.model.get("models", ())
        if facts["trainable"] and facts["dtypes"] == ["float32"]
    ]
    if not models:
        return False, "no model in float32 that learns"
    if any(mode.get("autocast") for facts in models for mode in facts["modes"].values()):
        return False, "the script chooses a precision itself"
    if not situation.on_device:
        if why := why_no("bf16") or _why_not_in_torch():
            return False, why
        return True, f"{models[0]['class']} computes in float32"
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 8:
        return False, "this device has no bfloat16"
    measured = [compare(entry) for entry in situation.capture.replays if entry["name"] == "amp"]
    if measured and not any(comparison.is_sure for comparison in measured):
        return False, "not measured to be faster"
    return True, f"{models[0]['class']} computes in float32"


def _why_not_in_torch() -> str | None:
    operations = torch.ops.mkldnn
    has_it = torch._C._has_mkldnn and operations._is_mkldnn_bf16_supported()
    return None if has_it else "torch has no bfloat16 on this processor"


def apply(situation: Situation) -> Undo:
    """To models that the script calls."""
    casts = _Casts(situation)
    outermost = Outermost(casts.around)
    outermost.start()
    patches = Patches()
    patches.replace(torch.amp.GradScaler, "__init__", casts.wrap_scaler)
    patches.replace(torch.autocast, "__enter__", casts.wrap_enter)

    def undo() -> None:
        outermost.undo()
        patches.undo()

    return undo


class _Casts:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._tries = Tries(situation, NAME)
        self._is_float: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._own: Any = None  # the context that is being entered
        self._is_on = True
        self._attention = self._make_attention(F.scaled_dot_product_attention)

    def around(self, module: Any, call: Any, args: Any, kwargs: Any) -> Any:
        """A call by the script."""
        kind = device_of(module)
        if (
            not (self._is_on and module.training and torch.is_grad_enabled())
            or torch.is_autocast_enabled(kind)
            or not self._is_single(module)
        ):
            return call(*args, **kwargs)
        return self._tries.call(
            module,
            lambda: self._cast(kind, call, args, kwargs),
            lambda: call(*args, **kwargs),
            (args, kwargs),
        )

    def wrap_scaler(self, original: Any) -> Any:
        def init(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            if scaler.is_enabled():
                self._leave()

        return init

    def wrap_enter(self, original: Any) -> Any:
        def enter(context: Any) -> Any:
            if context is not self._own and context._enabled:
                self._leave()
            return original(context)

        return enter

    def _leave(self) -> None:
        if self._is_on:
            self._is_on = False
            self._situation.note(NAME, "off, as the script chooses a precision itself")

    def _is_single(self, module: Any) -> bool:
        known = self._is_float.get(module)
        if known is None:
            known = all(parameter.dtype == torch.float32 for parameter in module.parameters())
            self._is_float[module] = known
        return known

    def _cast(self, kind: str, call: Any, args: Any, kwargs: Any) -> Any:
        context = torch.autocast(kind, dtype=torch.bfloat16)
        self._own = context
        with context:
            self._own = None
            with self._short_attention_in_float32(kind):
                result = call(*args, **kwargs)
        if not all(isinstance(leaf, _PLAIN) for leaf in tree_leaves(result)):
            raise TypeError(f"it returns {type(result).__name__}, which may hold bfloat16")
        return map_tensors(_widened, result)

    @contextmanager
    def _short_attention_in_float32(self, kind: str) -> Iterator[None]:
        """In these calls alone: others may ask for torch's own function."""
        before = F.scaled_dot_product_attention
        if kind == "cpu":
            F.scaled_dot_product_attention = self._attention
        try:
            yield
        finally:
            F.scaled_dot_product_attention = before

    def _make_attention(self, original: Any) -> Any:
        def attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            if (
                not (self._is_on and torch.is_autocast_enabled("cpu"))
                or not _are_short(query, key, value)
                or _is_made_again()
            ):
                return original(query, key, value, *args, **kwargs)
            with torch.autocast("cpu", enabled=False):
                args, kwargs = map_tensors(_widened, (args, kwargs))
                return original(query.float(), key.float(), value.float(), *args, **kwargs)

        return attention


_FLOATS = (torch.float32, torch.bfloat16)


def _are_short(*given: Any) -> bool:
    return (
        all(isinstance(one, torch.Tensor) and one.dtype in _FLOATS for one in given)
        and not any(one.is_nested for one in given)
        and given[1].is_cpu
        and given[1].shape[-2] < _FEW_KEYS
    )


def _is_made_again() -> bool:
    """By a checkpoint, in the backward pass, where it would be in bfloat16."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


FIX = Fix(NAME, "N", "forward passes compute in bfloat16", ("no-amp",), applies, apply)
