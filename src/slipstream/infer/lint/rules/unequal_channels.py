"""ShuffleNetV2's first guideline: a 1x1 convolution moves the least memory for its operations when
it has as many channels on both sides.
"""

from slipstream.infer.lint.case import Case, Rule, Seen, case_of, equal_layers
from slipstream.infer.lint.channels import same_product

_LEAST_RATIO = 2.0


def _find(seen: Seen) -> list[Case]:
    cases = []
    for layer, ops in equal_layers(seen.trace.ops).items():
        into, out = layer.in_channels, layer.out_channels
        if layer.kind != "convolution" or not layer.is_pointwise or layer.groups > 1:
            continue
        if max(into / out, out / into) < _LEAST_RATIO or any(op.from_input for op in ops):
            continue  # how many channels a picture has is not the model's to choose
        if pair := same_product(into * out):
            cases.append(
                case_of(layer, ops, {f"{pair[0]} -> {pair[1]}": layer.with_channels(*pair)})
            )
    return cases


RULE = Rule(
    "unequal-channels",
    "1x1 convolutions with very different channels on both sides are slower than ones of the same "
    "FLOPs with equal channels (ShuffleNetV2's G1).",
    "no 1x1 convolution whose channels differ by 2 times or more",
    "Bring the channels nearer to each other: a smaller expansion, or a wider bottleneck.",
    _find,
)
