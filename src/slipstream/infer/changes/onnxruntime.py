"""ONNX Runtime on the CPU: in float32, and with int8 that the caller's data calibrated.

It folds batch norms and arranges memory by itself, so nothing is changed before it.
"""

from torch import nn

from slipstream.infer.change import ENGINE, Change
from slipstream.infer.elsewhere.engine import elsewhere, quantized_elsewhere, threads
from slipstream.infer.elsewhere.needs import why_no_calibration, why_not, why_one_already
from slipstream.infer.elsewhere.runtimes import Runtime
from slipstream.infer.subject import Subject

_PACKAGES = ("onnxruntime", "onnx", "onnxscript")


def _float32(model: nn.Module, subject: Subject) -> nn.Module:
    return elsewhere(model, subject, Runtime("onnxruntime", threads()), tolerance=0.01)


def _spinning(model: nn.Module, subject: Subject) -> nn.Module:
    runtime = Runtime("onnxruntime", threads(), spins=True)
    return elsewhere(model, subject, runtime, tolerance=0.01)


def _on_one_thread(model: nn.Module, subject: Subject) -> nn.Module:
    return elsewhere(model, subject, Runtime("onnxruntime", 1), tolerance=0.01)


def _int8(model: nn.Module, subject: Subject) -> nn.Module:
    return quantized_elsewhere(model, subject, Runtime("onnxruntime", threads()), tolerance=0.5)


def _why_not(subject: Subject) -> str | None:
    return why_not(subject, *_PACKAGES)


def _why_not_one(subject: Subject) -> str | None:
    return why_one_already() or _why_not(subject)


def _why_no_int8(subject: Subject) -> str | None:
    return why_no_calibration(subject) or _why_not(subject)


ONNXRUNTIME = Change("onnxruntime", "exact", ENGINE, _float32, _why_not, builds_on=())
# As it comes: faster for calls that follow each other, at the cost of whatever runs beside them.
ONNXRUNTIME_SPINNING = Change(
    "onnxruntime spinning", "exact", ENGINE, _spinning, _why_not_one, builds_on=()
)
# A call of a tenth of a millisecond is over before a second thread wakes.
ONNXRUNTIME_ALONE = Change(
    "onnxruntime on 1 thread", "exact", ENGINE, _on_one_thread, _why_not_one, builds_on=()
)
ONNXRUNTIME_INT8 = Change("onnxruntime int8", "lossy", ENGINE, _int8, _why_no_int8, builds_on=())
