"""A model whose calls another runtime answers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from slipstream.infer.elsewhere.exported import Exported, exported
from slipstream.infer.elsewhere.runtimes import Opened, Runtime
from slipstream.infer.elsewhere.signature import Signature, arrays_from, tensors_from
from slipstream.infer.elsewhere.trial import Quantize, tried
from slipstream.infer.elsewhere.whole_numbers import limit_of
from slipstream.infer.fixed import FixedWeights
from slipstream.infer.shell import Shell
from slipstream.infer.subject import Subject

Answer = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]


class Elsewhere(FixedWeights):
    """Calls of the form and shapes that the graph was made for go to the runtime; all others to
    `model`, which is a copy of the caller's: they are right, and as fast as it is. Results have the
    same structure, and are the caller's own.
    """

    is_without_autograd = True

    def __init__(
        self, model: nn.Module, answer: Answer, signature: Signature, result: Shell
    ) -> None:
        super().__init__()
        self.model = model
        self.signature = signature
        self._answer = answer
        self._result = result
        self._opened = answer.opened if isinstance(answer, WithArrays) else None
        self._example = signature.example() if self._opened is not None else None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        if self._example is not None and self._opened is not None:
            arrays = self._example.arrays(args, kwargs)
            if arrays is not None:
                return self._result.filled(tensors_from(self._opened(arrays)))
        tensors = self.signature.tensors(args, kwargs)
        if tensors is None:
            with torch.inference_mode():
                return self.model(*args, **kwargs)
        return self._result.filled(self._answer(tensors))


class WithArrays:
    """A runtime that knows arrays, called with tensors."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What it gives."""
        return tensors_from(self.opened(arrays_from(tensors)))


def elsewhere(model: nn.Module, subject: Subject, runtime: Runtime, tolerance: float) -> Elsewhere:
    """Export, try in a process of its own, and only then open here. Raises `CannotExport`,
    `OtherNumbers`, `RuntimeFailed`, or what the runtime raises. For `tolerance` see `tried`.
    """
    made = _limited(exported(subject), runtime)
    runtime = replace(runtime, batch=made.cases[0].batch)
    signature = tried(made, made.file, runtime, tolerance)
    return Elsewhere(model, WithArrays(runtime.open(made.file)), signature, made.result)


def quantized_elsewhere(
    model: nn.Module, subject: Subject, runtime: Runtime, tolerance: float
) -> Elsewhere:
    """The same with int8, calibrated with the calls of the subject that have the example's form."""
    made = _limited(exported(subject), runtime)
    runtime = replace(runtime, batch=made.cases[0].batch)
    form = made.signature.with_batches(1, made.largest)
    if form.has_fixed_shapes:
        form = made.signature
    calls = [form.tensors(call.args, call.kwargs) for call in subject.calibration]
    fitting = [arrays_from(call) for call in calls if call is not None]
    if not fitting:
        raise ValueError(
            f"none of {len(calls)} calls to calibrate with has the form and shapes of the example"
        )
    file = made.file.with_name("int8.onnx")
    # Runtimes share the file.
    quantize = None if file.exists() else Quantize(made.file, fitting)
    signature = tried(made, file, runtime, tolerance, quantize)
    return Elsewhere(model, WithArrays(runtime.open(file)), signature, made.result)


def _limited(made: Exported, runtime: Runtime) -> Exported:
    """Raises `OtherNumbers`."""
    below = limit_of(made.used, runtime.name)
    return replace(made, signature=made.signature.with_whole_numbers(below))


def threads() -> int:
    """As many as torch takes."""
    return torch.get_num_threads()
