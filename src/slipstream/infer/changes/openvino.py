"""OpenVINO on the CPU. Left to itself it computes in as few bits as the processor is fast with;
here each change pins its own.
"""

from collections.abc import Callable

from torch import nn

from slipstream.infer.change import ENGINE, Change, Kind
from slipstream.infer.elsewhere.cpu import cpu_flags
from slipstream.infer.elsewhere.engine import elsewhere, threads
from slipstream.infer.elsewhere.needs import why_not
from slipstream.infer.elsewhere.runtimes import Runtime
from slipstream.infer.subject import Subject

_PACKAGES = ("openvino", "onnx", "onnxscript")
_NEEDS = {
    "f32": frozenset[str](),
    "bf16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "f16": frozenset({"avx512_fp16", "amx_fp16", "asimdhp"}),
}


def _in(precision: str, tolerance: float) -> Callable[[nn.Module, Subject], nn.Module]:
    def apply(model: nn.Module, subject: Subject) -> nn.Module:
        return elsewhere(model, subject, Runtime("openvino", threads(), precision), tolerance)

    return apply


def _why_not(precision: str) -> Callable[[Subject], str | None]:
    def why(subject: Subject) -> str | None:
        if (needs := _NEEDS[precision]) and not needs & cpu_flags():
            return f"the processor has no arithmetic in {precision}"
        return why_not(subject, *_PACKAGES)

    return why


def _change(name: str, kind: Kind, precision: str, tolerance: float) -> Change:
    return Change(name, kind, ENGINE, _in(precision, tolerance), _why_not(precision), builds_on=())


OPENVINO = _change("openvino", "exact", "f32", 0.01)
OPENVINO_BF16 = _change("openvino bf16", "mixed", "bf16", 0.1)
OPENVINO_F16 = _change("openvino f16", "mixed", "f16", 0.1)
