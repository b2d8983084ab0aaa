"""Layers that belong together in a graph: on the same input, in branches that meet, in a row."""

from collections.abc import Iterator

from slipstream.infer.lint.layer import Layer
from slipstream.infer.lint.trace import Op, Trace

_MANY_WAYS = 3
_MANY_LAYERS = 5
_COPIES = ("clone", "contiguous", "_to_copy", "copy")

Block = tuple[Op, ...]


def layer_of(op: Op) -> Layer:
    """Of an operator that is one."""
    assert op.layer is not None
    return op.layer


def on_same_input(trace: Trace) -> list[Block]:
    """Dense layers of one form that read the whole of the same tensor: they could be one layer,
    with the same result. Copies are looked through.
    """
    found: dict[tuple[object, ...], list[Op]] = {}
    for op in trace.ops:
        if op.layer is None or op.layer.groups > 1 or len(op.sources) != 1:
            continue
        source, layer = op.sources[0], op.layer
        index = source.index
        while trace.ops[index].name in _COPIES and len(trace.ops[index].sources) == 1:
            index = trace.ops[index].sources[0].index
        if source.numel != trace.ops[index].numel:
            continue  # a part of it
        form = (
            layer.kind, layer.input_shape, layer.kernel, layer.stride, layer.padding,
            layer.dilation, layer.output_padding, layer.transposed, layer.channels_last,
        )  # fmt: skip
        found.setdefault((index, *form), []).append(op)
    # A layer that is called twice on one tensor would be work done twice, not a fragment.
    blocks = [tuple(ops) for ops in found.values() if len(ops) > 1]
    return [block for block in blocks if len({op.module for op in block}) == len(block)]


def branches(trace: Trace) -> list[Block]:
    """Layers between a tensor that several operators read and the operator where the ways from
    there meet again: three ways or more with layers, or two with five layers. A shortcut with one
    layer beside the three of a residual block is none.
    """
    consumers = trace.consumers()
    found = []
    for index in range(len(trace.ops)):
        if len(consumers[index]) < 2:
            continue
        ways: dict[int, list[list[Op]]] = {}
        for start in consumers[index]:
            layers, end = _way(trace, consumers, start)
            if layers and end is not None:
                ways.setdefault(end, []).append(layers)
        for meeting in ways.values():
            block = tuple(op for layers in meeting for op in layers)
            if len(meeting) >= _MANY_WAYS or (len(meeting) > 1 and len(block) >= _MANY_LAYERS):
                found.append(block)
    return found


def _way(trace: Trace, consumers: list[list[int]], start: int) -> tuple[list[Op], int | None]:
    """Layers from an operator on until one that has several inputs."""
    layers: list[Op] = []
    index = start
    while True:
        op = trace.ops[index]
        if len({source.index for source in op.sources}) > 1:
            return layers, index
        if op.layer is not None:
            layers.append(op)
        if len(consumers[index]) != 1:
            return layers, None
        index = consumers[index][0]


def rows(trace: Trace) -> list[Block]:
    """Dense layers that follow each other, each read by the next alone, at places of the same
    number; norms and element-wise operators may stand between.
    """
    consumers = trace.consumers()
    seen: set[int] = set()
    found = []
    for index, op in enumerate(trace.ops):
        if op.layer is not None and index not in seen:
            row = list(_row(trace, consumers, index))
            seen.update(row)
            found.append(tuple(trace.ops[each] for each in row))
    return found


def _row(trace: Trace, consumers: list[list[int]], index: int) -> Iterator[int]:
    first = layer_of(trace.ops[index])
    while True:
        op = trace.ops[index]
        if op.layer is not None:
            alike = (op.layer.kind, op.layer.places) == (first.kind, first.places)
            if not alike or op.layer.groups > 1:
                return
            yield index
        elif op.kind not in ("norm", "element-wise") or len(op.sources) != 1:
            return
        if len(consumers[index]) != 1:
            return
        index = consumers[index][0]
