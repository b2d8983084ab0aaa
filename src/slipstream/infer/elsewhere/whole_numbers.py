"""What an ONNX file computes with the whole numbers that it is given. Runtimes have fewer bits for
them than torch: OpenVINO counts in 32 bits, or in floating-point numbers, and keeps bytes from
running over, so that it gives others beyond the values that it was tried with.
"""

from pathlib import Path
from typing import Any

# What passes numbers on as they are.
_MOVES = {
    "Concat", "DepthToSpace", "Expand", "Flatten", "Identity", "Pad", "Reshape", "Slice", "Split",
    "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
# What looks rows up, by numbers that may be no others than there are rows.
_LOOKS_UP = {"Gather", "GatherElements", "GatherND", "OneHot"}
_COMPARES = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
# What is the same in fewer bits as long as nothing runs over.
_SMALL = {"Abs", "Add", "Clip", "CumSum", "Max", "Min", "Neg", "ReduceMax", "ReduceMin",
          "ReduceSum", "Sign", "Sub", "Sum"}  # fmt: skip
_LIMIT = 1 << 24  # floating-point numbers of 32 bits hold all below it


class OtherNumbers(Exception):
    """What a runtime would compute with whole numbers is not what torch computes."""


def limit_of(file: Path, runtime: str) -> int | None:
    """The whole numbers that the file is given have to be smaller than this, either way; None where
    any will do. Raises `OtherNumbers` for what the runtime does in another way.
    """
    used = _used(file)
    if runtime == "onnxruntime":  # its kernels for vectors clamp in another way beyond 32 bits
        return _LIMIT if any(operator == "Clip" for operator, _ in used) else None
    for operator, bits in sorted(used):
        known = operator in _COMPARES or operator == "Cast" or (operator in _SMALL and bits >= 32)
        if not known:
            raise OtherNumbers(
                f"it has no whole numbers of {bits} bits for {operator}, as torch has"
            )
    return _LIMIT if used else None


def _used(file: Path) -> set[tuple[str, int]]:
    """Operators that compute with whole numbers that are given, and the bits that these have."""
    import onnx

    graph = onnx.load(str(file), load_external_data=False).graph
    bits_of = {kind: each.itemsize * 8 for kind, each in _whole(onnx).items()}
    given: dict[str, int] = {}
    for each in graph.input:
        if (bits := bits_of.get(each.type.tensor_type.elem_type)) is not None:
            given[each.name] = bits
    used: set[tuple[str, int]] = set()
    for node in graph.node:
        operator = node.op_type
        names = [*node.input[:1]] if operator in _LOOKS_UP else list(node.input)
        if operator == "OneHot":
            names = []
        bits = max((given.get(name, 0) for name in names), default=0)
        if not bits or operator in ("Shape", "Size"):
            continue
        if operator not in _MOVES and operator not in _LOOKS_UP:
            used.add((operator, bits))
        if operator in _COMPARES:
            continue
        if operator == "Cast":
            (to,) = (each.i for each in node.attribute if each.name == "to")
            bits = bits_of.get(to, 0)
        for name in node.output if bits else ():
            given[name] = bits
    return used


def _whole(onnx: Any) -> dict[int, Any]:
    kinds = onnx.TensorProto
    whole = (kinds.INT8, kinds.INT16, kinds.INT32, kinds.INT64,
             kinds.UINT8, kinds.UINT16, kinds.UINT32, kinds.UINT64)  # fmt: skip
    return {kind: onnx.helper.tensor_dtype_to_np_dtype(kind) for kind in whole}
