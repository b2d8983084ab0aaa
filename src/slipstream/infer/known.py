"""The changes that a search tries, by the stage in which it does."""

from slipstream.infer.change import Change
from slipstream.infer.changes import (
    around,
    compiled,
    layout,
    onnxruntime,
    openvino,
    precision,
    pt2e,
    tensorrt,
    torchao,
)

# Made in no time: a budget may end at any of the others.
QUICK: tuple[Change, ...] = (
    compiled.CUDA_GRAPH,
    compiled.TORCHSCRIPT,
    openvino.OPENVINO,
    onnxruntime.ONNXRUNTIME,
    onnxruntime.ONNXRUNTIME_SPINNING,
    onnxruntime.ONNXRUNTIME_ALONE,
    openvino.OPENVINO_ALONE,
)
COMPILED: tuple[Change, ...] = (
    compiled.COMPILE,
    compiled.FREEZING,
    compiled.CUDA_GRAPHS,
    tensorrt.TENSORRT,
    tensorrt.TENSORRT_EMBEDDED,
    compiled.MAX_AUTOTUNE_GRAPHS,
    compiled.FREEZING_AUTOTUNE,
    compiled.MAX_AUTOTUNE,
    compiled.AHEAD_OF_TIME,  # takes minutes with some compilers
)
PRECISIONS: tuple[Change, ...] = (
    precision.BF16,
    precision.BF16_AUTOCAST,
    precision.TF32,
    precision.FP16,
    precision.FP16_AUTOCAST,
    openvino.OPENVINO_BF16,
    openvino.OPENVINO_F16,
)
QUICKLY_QUANTIZED: tuple[Change, ...] = (openvino.OPENVINO_INT8, onnxruntime.ONNXRUNTIME_INT8)
QUANTIZED: tuple[Change, ...] = (
    pt2e.INT8_STATIC,
    torchao.INT8_DYNAMIC,
    pt2e.INT8_DYNAMIC,
    torchao.INT8_WEIGHTS,
)
LAYOUTS: tuple[Change, ...] = (layout.FOLD, layout.CHANNELS_LAST)
LIBRARIES: tuple[Change, ...] = (around.WITHOUT_ONEDNN,)


def all_changes() -> dict[str, Change]:
    """By name."""
    changes = (*LAYOUTS, *LIBRARIES, *QUICK, *COMPILED, *PRECISIONS, *QUICKLY_QUANTIZED, *QUANTIZED)
    return {change.name: change for change in changes}
