"""`tf32`: products of float32 use the tensor cores, with ten bits behind the point."""

import torch

from slipstream.doctor.rules.replayed import compare
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.tf32 import allow_tf32, restore_tf32

NAME = "tf32"


def applies(situation: Situation) -> tuple[bool, str]:
    """On a device that has it, unless it was measured to gain nothing."""
    if not situation.on_device:
        return False, "nothing is computed on a device"
    if situation.capture.settings.get("matmul_precision", "highest") != "highest":
        return False, "it is on"
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 8:
        return False, "this device does not have it"
    measured = [compare(entry) for entry in situation.capture.replays if entry["name"] == NAME]
    if measured and not any(comparison.is_sure for comparison in measured):
        return False, "not measured to be faster"
    return True, "products in full float32 do not use the tensor cores"


def apply(situation: Situation) -> Undo:
    """Until the script sets it itself."""
    before = allow_tf32()
    return lambda: restore_tf32(before)


FIX = Fix(NAME, "N", "float32 products use the tensor cores", ("no-tf32",), applies, apply)
