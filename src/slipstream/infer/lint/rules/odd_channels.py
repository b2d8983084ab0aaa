"""Channels that are no multiples of 8: kernels work on 8 or more at once."""

from slipstream.infer.lint.case import Case, Rule, Seen, case_of, equal_layers
from slipstream.infer.lint.channels import next_multiple
from slipstream.infer.lint.layer import Layer


def _find(seen: Seen) -> list[Case]:
    cases = []
    for layer, ops in equal_layers(seen.trace.ops).items():
        fixed = any(op.from_input for op in ops)
        others = {}
        for word, up in (("up", True), ("down", False)):
            other = _rounded(layer, up, fixed)
            if other is not None and other != layer:
                words = f"{word} to {other.in_channels} -> {other.out_channels}"
                others[words] = other
        if others:
            cases.append(case_of(layer, ops, others))
    return cases


def _rounded(layer: Layer, up: bool, fixed: bool) -> Layer | None:
    """`fixed`: the input's channels are the data's."""
    into = layer.in_channels if fixed else next_multiple(layer.in_channels, up)
    out = next_multiple(layer.out_channels, up)
    if not up and (into > layer.in_channels or out > layer.out_channels):
        return None  # there is no multiple below
    if layer.is_depthwise:
        return None if fixed else layer.with_channels(into, into, groups=into)
    if layer.groups > 1:
        return None  # its channels belong to groups
    return layer.with_channels(into, out)


RULE = Rule(
    "odd-channels",
    "Layers whose channels are no multiples of 8 are slower than wider ones, or narrower ones are "
    "faster by more than they do less.",
    "all channels are multiples of 8",
    "Round the channels to a multiple of 8; pad classes or a vocabulary with unused ones.",
    _find,
)
