"""What an ONNX file computes with the whole numbers that it is given. Runtimes have fewer bits for
them than torch: OpenVINO counts in 32 bits, or in floating-point numbers, and keeps bytes from
running over, so that it gives others beyond the values that it was tried with. ONNX Runtime does so
in some operations, and in others the file itself does.
"""

from pathlib import Path
from typing import Any

Used = frozenset[tuple[str, int]]

# What passes numbers on as they are.
_MOVES = {
    "Concat", "DepthToSpace", "Expand", "Flatten", "Identity", "Pad", "Reshape", "Slice", "Split",
    "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
# What looks rows up, by numbers that may be no others than there are rows.
_LOOKS_UP = {"Gather", "GatherElements", "GatherND"}
# OpenVINO looks these up wherever they are, in memory that is another's.
_UNCHECKED = {"GatherElements", "GatherND", "ScatterElements", "ScatterND"}
_ENDS = {"OneHot", "Shape", "Size"}
_COMPARES = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
_ANY = _COMPARES | {"Cast", "Identity"}
# What is the same in fewer bits as long as nothing runs over.
_SMALL = {"Abs", "Add", "Clip", "CumSum", "Max", "Min", "Neg", "ReduceMax", "ReduceMin",
          "ReduceSum", "Sign", "Sub", "Sum"}  # fmt: skip
# What ONNX Runtime has all bits for.
_WHOLE = _ANY | _UNCHECKED | {"Abs", "Add", "Mul", "Neg", "Sub"}
_BACK = "Cast back"  # to whole numbers, of what may have been such
_LIMIT = 1 << 24  # floating-point numbers of 32 bits hold all below it


class OtherNumbers(Exception):
    """What a runtime would compute with whole numbers is not what torch computes."""


def limit_of(used: Used, runtime: str) -> int | None:
    """The whole numbers that a graph is given have to be smaller than this, either way; None where
    any will do. Raises `OtherNumbers` for what the runtime does in another way.
    """
    operators = {operator for operator, _ in used}
    if runtime == "onnxruntime":
        is_back = _BACK in operators and "Cast" in operators
        return _LIMIT if is_back or operators - _WHOLE - {_BACK} else None
    if unchecked := operators & _UNCHECKED:
        raise OtherNumbers(f"it has no limits for the numbers of {min(unchecked)}, as torch has")
    for operator, bits in sorted(used):
        if operator not in _ANY and operator != _BACK and (operator not in _SMALL or bits < 32):
            raise OtherNumbers(
                f"it has no whole numbers of {bits} bits for {operator}, as torch has"
            )
    return _LIMIT if operators - {_BACK} else None


def used_in(file: Path) -> Used:
    """Operators of an ONNX file that compute with whole numbers that it is given, or give them
    back, and the bits that these have.
    """
    import onnx

    kinds = onnx.TensorProto
    bits_of: dict[int, int] = {
        kinds.INT8: 8, kinds.INT16: 16, kinds.INT32: 32, kinds.INT64: 64,
        kinds.UINT8: 8, kinds.UINT16: 16, kinds.UINT32: 32, kinds.UINT64: 64,
    }  # fmt: skip
    graph = onnx.load(str(file), load_external_data=False).graph
    given = {each.name: bits_of.get(each.type.tensor_type.elem_type, 0) for each in graph.input}
    used: set[tuple[str, int]] = set()
    for node in graph.node:
        operator = node.op_type
        names = node.input[:1] if operator in _LOOKS_UP else node.input
        if operator in _UNCHECKED and (found := given.get(node.input[1], 0)):
            used.add((operator, found))
        if operator == "Cast" and not given.get(node.input[0]) and (to := bits_of.get(_to(node))):
            used.add((_BACK, to))
        bits = max((given.get(name, 0) for name in names), default=0)
        if not bits or operator in _ENDS:
            continue
        if operator not in _MOVES and operator not in _LOOKS_UP:
            used.add((operator, bits))
        if operator in _COMPARES:
            continue
        if operator == "Cast":
            bits = bits_of.get(_to(node), 0)
        given.update(dict.fromkeys(node.output, bits))
    used.update(("Identity", given[each.name]) for each in graph.output if given.get(each.name))
    return frozenset(used)


def _to(node: Any) -> int:
    """The type that it gives."""
    return int(next(each.i for each in node.attribute if each.name == "to"))
