"""OpenVINO on the CPU. Left to itself it computes in as few bits as the processor is fast with;
here each change pins its own.
"""

from collections.abc import Callable

from torch import nn

from slipstream.infer.change import ENGINE, Change, Kind
from slipstream.infer.elsewhere.engine import elsewhere, quantized_elsewhere, threads
from slipstream.infer.elsewhere.needs import why_no_calibration, why_not, why_one_already
from slipstream.infer.elsewhere.runtimes import Runtime
from slipstream.infer.subject import Subject
from slipstream.processor import why_no

_PACKAGES = ("openvino", "onnx", "onnxscript")


def _in(precision: str, tolerance: float) -> Callable[[nn.Module, Subject], nn.Module]:
    def apply(model: nn.Module, subject: Subject) -> nn.Module:
        return elsewhere(model, subject, Runtime("openvino", threads(), precision), tolerance)

    return apply


def _on_one_thread(model: nn.Module, subject: Subject) -> nn.Module:
    return elsewhere(model, subject, Runtime("openvino", 1), tolerance=0.01)


def _int8(model: nn.Module, subject: Subject) -> nn.Module:
    return quantized_elsewhere(model, subject, Runtime("openvino", threads()), tolerance=0.5)


def _why_not(precision: str) -> Callable[[Subject], str | None]:
    def why(subject: Subject) -> str | None:
        return why_no(precision) or why_not(subject, *_PACKAGES)

    return why


def _why_not_one(subject: Subject) -> str | None:
    return why_one_already() or why_not(subject, *_PACKAGES)


def _why_no_int8(subject: Subject) -> str | None:
    # ONNX Runtime's quantizer makes the graph.
    return why_no_calibration(subject) or why_not(subject, *_PACKAGES, "onnxruntime")


def _change(name: str, kind: Kind, precision: str, tolerance: float) -> Change:
    return Change(name, kind, ENGINE, _in(precision, tolerance), _why_not(precision), builds_on=())


OPENVINO = _change("openvino", "exact", "f32", 0.01)
OPENVINO_ALONE = Change(
    "openvino on 1 thread", "exact", ENGINE, _on_one_thread, _why_not_one, builds_on=()
)
OPENVINO_BF16 = _change("openvino bf16", "mixed", "bf16", 0.1)
OPENVINO_F16 = _change("openvino f16", "mixed", "f16", 0.1)
OPENVINO_INT8 = Change("openvino int8", "lossy", ENGINE, _int8, _why_no_int8, builds_on=())
