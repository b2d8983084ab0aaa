"""`cudnn-benchmark`: cuDNN measures which algorithm is fastest, and does not guess."""

import torch

from slipstream.doctor.rules.passes import has_steady_shapes
from slipstream.doctor.rules.replayed import compare
from slipstream.run.fix import Fix, Situation, Undo

NAME = "cudnn-benchmark"


def applies(situation: Situation) -> tuple[bool, str]:
    """For convolutions on a device, where nobody asked for the same results every time, unless it
    was measured to gain nothing.
    """
    settings = situation.capture.settings
    if not situation.on_device:
        return False, "nothing is computed on a device"
    if settings.get("cudnn_benchmark"):
        return False, "it is on"
    if settings.get("deterministic"):
        return False, "the script asks for deterministic algorithms"
    models = [m for m in situation.capture.model.get("models", ()) if m["convolutions"]]
    if not models:
        return False, "no convolutions"
    if not all(has_steady_shapes(facts) for facts in models):
        return False, "inputs have ever new shapes, and each would be searched for"
    measured = [compare(entry) for entry in situation.capture.replays if entry["name"] == NAME]
    if measured and not any(comparison.is_sure for comparison in measured):
        return False, "not measured to be faster"
    return True, "cuDNN guesses its algorithms"


def apply(situation: Situation) -> Undo:
    """Until the script sets it itself."""
    before = torch.backends.cudnn.benchmark
    if not torch.backends.cudnn.deterministic:
        torch.backends.cudnn.benchmark = True

    def undo() -> None:
        torch.backends.cudnn.benchmark = before

    return undo


FIX = Fix(
    NAME, "N", "cuDNN measures which algorithm is fastest", ("cudnn-benchmark-off",), applies, apply
)
