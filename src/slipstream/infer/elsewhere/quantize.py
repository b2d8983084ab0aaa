"""int8 by ONNX Runtime's own quantizer. Runs in the child process, and knows no torch."""

import platform
from importlib import import_module
from pathlib import Path
from typing import Any

from slipstream.infer.elsewhere.cpu import cpu_flags
from slipstream.infer.elsewhere.lists import load_lists
from slipstream.infer.elsewhere.runtimes import Array, input_name


def quantize(file: Path, made: Path, calibration: Path) -> None:
    """Write a graph with quantized weights, one scale per channel, and activations whose ranges
    were seen with the calibration data.

    On x86 activations are unsigned, as the instructions want them, and weights have 7 bits where
    there is no VNNI: sums of 16 bits would overflow. On ARM activations are signed, and sums have
    32 bits.
    """
    tools = import_module("onnxruntime.quantization")
    prepared = made.with_suffix(".prepared.onnx")
    tools.quant_pre_process(str(file), str(prepared))
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    activations = tools.QuantType.QUInt8 if is_x86 else tools.QuantType.QInt8
    tools.quantize_static(
        str(prepared), str(made), _Reader(prepared, list(load_lists(calibration).values())),
        quant_format=tools.QuantFormat.QDQ, activation_type=activations,
        weight_type=tools.QuantType.QInt8, per_channel=True,
        reduce_range=is_x86 and not cpu_flags() & {"avx512_vnni", "avx_vnni"},
    )  # fmt: skip
    prepared.unlink()
    if not any(node.op_type == "QuantizeLinear" for node in _graph_of(made).node):
        raise ValueError("nothing in the model could be quantized")


class _Reader:
    """Feeds the graph, as ONNX Runtime asks for it."""

    def __init__(self, file: Path, cases: list[list[Array]]) -> None:
        self._names = {each.name for each in _graph_of(file).input}
        self._left = iter(cases)

    def get_next(self) -> dict[str, Array] | None:
        """None behind the last."""
        arrays = next(self._left, None)
        if arrays is None:
            return None
        named = {input_name(number): array for number, array in enumerate(arrays)}
        return {name: array for name, array in named.items() if name in self._names}


def _graph_of(file: Path) -> Any:
    return import_module("onnx").load(str(file), load_external_data=False).graph
