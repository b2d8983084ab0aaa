"""ShuffleNetV2's third guideline: many small layers, side by side or in a row, use a device worse
than one layer of the same operations.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from slipstream.infer.lint.blocks import Block, branches, layer_of, on_same_input, rows
from slipstream.infer.lint.case import Case, Rule, Seen
from slipstream.infer.lint.channels import same_product
from slipstream.infer.lint.layer import Layer

_LEAST_ROW = 3  # layers behind each other
_SMALL = 5.0  # times what a layer takes on one number


def _find(seen: Seen) -> list[Case]:
    same_input = on_same_input(seen.trace)
    taken = {id(op) for block in same_input for op in block}
    forked = [block for block in branches(seen.trace) if any(id(op) not in taken for op in block)]
    taken |= {id(op) for block in forked for op in block}
    small = [
        block
        for block in rows(seen.trace)
        if len(block) >= _LEAST_ROW
        and not any(id(op) in taken for op in block)
        and _all_small(block, seen)
    ]
    return [
        *_cases(same_input, "layers on the same input", _merged),
        *_cases(forked, "layers in branches", _one_like),
        *_cases(small, "small layers in a row", _one_like),
    ]


def _all_small(block: Block, seen: Seen) -> bool:
    quickest: dict[Layer, float] = {}  # of equal layers: one may have been interrupted
    for op in block:
        layer = layer_of(op)
        quickest[layer] = min(op.seconds, quickest.get(layer, op.seconds))
    return all(s <= _SMALL * seen.tiny_s.get(layer.kind, 0.0) for layer, s in quickest.items())


def _cases(
    blocks: Sequence[Block], words: str, one: Callable[[tuple[Layer, ...]], Layer | None]
) -> list[Case]:
    equal: dict[tuple[Layer, ...], list[Block]] = {}
    for block in blocks:
        equal.setdefault(tuple(map(layer_of, block)), []).append(block)
    cases = []
    for layers, group in equal.items():
        if other := one(layers):
            largest = max(layers, key=lambda layer: layer.flops)
            where = tuple(tuple(op.module for op in block) for block in group)
            seconds = sum(op.seconds for block in group for op in block)
            what = f"{len(layers)} {words}, the largest {largest}"
            cases.append(Case(layers, {f"one {other}": (other,)}, where, seconds, what))
    return cases


def _merged(layers: tuple[Layer, ...]) -> Layer:
    """Their weights side by side: the same operations and the same results."""
    return replace(
        layers[0],
        out_channels=sum(layer.out_channels for layer in layers),
        has_bias=any(layer.has_bias for layer in layers),
    )


def _one_like(layers: tuple[Layer, ...]) -> Layer | None:
    """One like the largest, dense, with as many channels on both sides as the operations of all of
    them make.
    """
    largest = max(layers, key=lambda layer: layer.flops)
    product = sum(layer.flops for layer in layers) / (
        2 * largest.places * math.prod(largest.kernel)
    )
    pair = same_product(product)
    return largest.with_channels(*pair) if pair else None


RULE = Rule(
    "fragmented-blocks",
    "Several layers, side by side or in a row, are slower than one layer of the same FLOPs "
    "(ShuffleNetV2's G3).",
    "no layers side by side, and no rows of small ones",
    "Join layers that read the same input into one and split its result; use fewer, wider "
    "branches.",
    _find,
)
