"""All rules, in the order in which they are listed."""

from slipstream.infer.lint import element_wise, launching, parameters
from slipstream.infer.lint.rules import (
    bias_before_norm,
    fragmented_blocks,
    grouped_convolution,
    odd_channels,
    unequal_channels,
)

LAYER_RULES = (
    unequal_channels.RULE,
    grouped_convolution.RULE,
    fragmented_blocks.RULE,
    odd_channels.RULE,
    bias_before_norm.RULE,
)
RULES = (
    *(rule.name for rule in LAYER_RULES),
    element_wise.RULE,
    launching.RULE,
    parameters.UNUSED,
    parameters.FROZEN,
)
