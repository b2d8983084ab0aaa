"""ShuffleNetV2's second guideline: groups save operations, not memory traffic."""

from slipstream.infer.lint.case import Case, Rule, Seen, case_of, equal_layers
from slipstream.infer.lint.channels import same_product


def _find(seen: Seen) -> list[Case]:
    cases = []
    for layer, ops in equal_layers(seen.trace.ops).items():
        if layer.groups == 1:
            continue
        into, out = layer.in_channels, layer.out_channels
        if pair := same_product(into * out / layer.groups, into / out):
            words = f"dense, {pair[0]} -> {pair[1]}"
            cases.append(case_of(layer, ops, {words: layer.with_channels(*pair)}))
    return cases


RULE = Rule(
    "grouped-convolution",
    "Convolutions in groups are slower than dense ones of the same FLOPs, which have fewer "
    "channels (ShuffleNetV2's G2).",
    "no convolution in groups",
    "Fewer groups with fewer channels; or dense convolutions in the places that cost most.",
    _find,
)
