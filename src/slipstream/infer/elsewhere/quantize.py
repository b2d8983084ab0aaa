"""int8 by ONNX Runtime's own quantizer. Runs in the child process, and knows no torch."""

import platform
from importlib import import_module
from pathlib import Path
from typing import Any

from slipstream.infer.elsewhere.lists import load_lists
from slipstream.infer.elsewhere.runtimes import Array, input_name
from slipstream.processor import cpu_flags


def quantize(file: Path, made: Path, calibration: Path) -> None:
    """Write a graph with quantized weights, one scale per channel, and activations whose ranges
    were seen with the calibration data.
    """
    tools = import_module("onnxruntime.quantization")
    prepared, partial = made.with_suffix(".prepared.onnx"), made.with_suffix(".partial.onnx")
    tools.quant_pre_process(str(file), str(prepared))
    activations, reduce_range = types_for(platform.machine(), cpu_flags())
    tools.quantize_static(
        str(prepared), str(partial), _Reader(prepared, list(load_lists(calibration).values())),
        quant_format=tools.QuantFormat.QDQ, activation_type=tools.QuantType[activations],
        weight_type=tools.QuantType.QInt8, per_channel=True, reduce_range=reduce_range,
    )  # fmt: skip
    prepared.unlink()
    if not any(node.op_type == "QuantizeLinear" for node in _graph_of(partial).node):
        raise ValueError("nothing in the model could be quantized")
    partial.rename(made)  # there is a whole file, or none


def types_for(machine: str, flags: frozenset[str]) -> tuple[str, bool]:
    """Of activations, and whether weights have 7 bits. On x86 activations are unsigned, as its
    instructions want them, and sums of 16 bits would overflow where there is no VNNI. On ARM they
    are signed, and sums have 32 bits.

    >>> types_for("x86_64", frozenset({"avx2"}))
    ('QUInt8', True)
    """
    if machine in ("x86_64", "AMD64"):
        return "QUInt8", not flags & {"avx512_vnni", "avx_vnni"}
    return "QInt8", False


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
