"""`own-kernels`: torch computes with its own kernels and BLAS instead of oneDNN's.

On some processors they are faster, for small products above all; only a trial tells. Sums go in
another order.
"""

import torch

from slipstream.run.fix import Fix, Situation, Undo

NAME = "own-kernels"


def applies(situation: Situation) -> tuple[bool, str]:
    """Where a processor computes, with oneDNN."""
    if situation.on_device:
        return False, "the model is not on the processor"
    if not torch._C._has_mkldnn or not torch._C._get_mkldnn_enabled():
        return False, "torch does not use oneDNN"
    if not situation.capture.model.get("models"):
        return False, "no model was seen"
    return True, "oneDNN is the slower one on some processors"


def apply(situation: Situation) -> Undo:
    """From the script's start, until it sets it itself."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    return lambda: torch._C._set_mkldnn_enabled(before)


FIX = Fix(
    NAME, "N", "torch computes with its own kernels instead of oneDNN's", (), applies, apply
)  # fmt: skip
