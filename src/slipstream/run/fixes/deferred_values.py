"""`deferred-values`: `.item()` for a log does not wait for the device.

What it gives is a number that is still on its way, and is read when it is printed or compared.
It is no float to isinstance, so this is done only where the source of the function shows that the
value is summed up, formatted or compared, and nothing else.
"""

import sys
from types import CodeType
from typing import Any

import torch

from slipstream.doctor.record.places import is_users
from slipstream.patches import Patches
from slipstream.run.deferred.uses import only_summed_and_shown
from slipstream.run.deferred.value import deferred
from slipstream.run.fix import Fix, Situation, Undo

NAME = "deferred-values"
_OFTEN = 8  # in the recording


def applies(situation: Situation) -> tuple[bool, str]:
    """Where the loop reads values of a device."""
    if not situation.on_device:
        return False, "values are on the processor already"
    calls = situation.capture.calls
    reads = [call for call in calls if call.what == "Tensor.item" and call.count >= _OFTEN]
    if not reads:
        return False, "no .item() in the loop"
    return True, f".item() at {reads[0].where} waits for the device"


def apply(situation: Situation) -> Undo:
    """Of `.item()` in the script's own code."""
    values = _Values(situation)
    patches = Patches()
    patches.replace(torch.Tensor, "item", values.wrap)
    return patches.undo


class _Values:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._sites: dict[tuple[CodeType, int], bool] = {}

    def wrap(self, original: Any) -> Any:
        def item(tensor: Any) -> Any:
            if not tensor.is_cuda or NAME in self._situation.failures:
                return original(tensor)
            frame = sys._getframe(1)
            try:
                if self.can_wait(frame) and not torch.cuda.is_current_stream_capturing():
                    return deferred(tensor) if tensor.numel() == 1 else original(tensor)
            except Exception as error:
                self._situation.give_up(NAME, error)
            return original(tensor)

        return item

    def can_wait(self, frame: Any) -> bool:
        """Whether the value of this call is only summed up and shown."""
        key = (frame.f_code, frame.f_lasti)
        known = self._sites.get(key)
        if known is None:
            known = is_users(frame.f_code) and only_summed_and_shown(*_place(frame))
            self._sites[key] = known
            if known:
                self._situation.note(NAME, f"at line {frame.f_lineno} of {_name(frame.f_code)}")
        return known


def _name(code: CodeType) -> str:
    return code.co_filename.rpartition("/")[2]


def _place(frame: Any) -> tuple[CodeType, int]:
    return frame.f_code, frame.f_lineno


FIX = Fix(
    NAME, "E", ".item() for a log does not wait for the device", ("sync-each-step",), applies,
    apply,
)  # fmt: skip
