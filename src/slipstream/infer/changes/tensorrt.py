"""TensorRT on NVIDIA GPUs, where `torch_tensorrt` is installed. Not verified: no machine that had
both has run it yet. A variant that fails or errs is a row of the table, as any other.
"""

import importlib.util

from slipstream.infer.change import ENGINE, Change
from slipstream.infer.elsewhere.tensorrt import with_tensorrt
from slipstream.infer.subject import Subject


def _why_not(subject: Subject) -> str | None:
    if subject.device.type != "cuda":
        return "the model is not on a CUDA device"
    if importlib.util.find_spec("torch_tensorrt") is None:
        return "torch_tensorrt is not installed: pip install torch-tensorrt"
    return None


TENSORRT = Change(
    "tensorrt", "exact", ENGINE, lambda model, subject: with_tensorrt(model, subject, "compiled"),
    _why_not, builds_on=(),
)  # fmt: skip
TENSORRT_EMBEDDED = Change(
    "tensorrt embedded", "exact", ENGINE,
    lambda model, subject: with_tensorrt(model, subject, "embedded"), _why_not, builds_on=(),
)  # fmt: skip
