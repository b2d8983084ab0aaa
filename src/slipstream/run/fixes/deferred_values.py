"""`deferred-values`: `.item()` for a log does not wait for the device.

What it gives is a number that is still on its way, and is read when it is printed or compared.
It is no float to isinstance, so this is done only where the source of the function shows that the
value is summed up, formatted or compared, or given to a meter that sums it up, and nothing else.
What else the script relies on such a wait for is waited for still (`run/unawaited.py`).
"""

import inspect
import sys
from types import CodeType
from typing import Any

import torch

from slipstream.doctor.record.places import is_users
from slipstream.patches import Patches
from slipstream.run.deferred.meters import Meters
from slipstream.run.deferred.uses import Meter, only_summed_and_shown
from slipstream.run.deferred.value import deferred
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.unawaited import unawaited

NAME = "deferred-values"
_OFTEN = 8  # in the recording
_LOOKS = frozenset({"locals", "vars", "dir", "eval", "exec"})  # see the same names


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
    leave = unawaited.follow()
    patches = Patches()
    patches.replace(torch.Tensor, "item", values.wrap)

    def undo() -> None:
        patches.undo()
        leave()
        values.meters.undo()

    return undo


class _Values:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._sites: dict[tuple[CodeType, int], set[Meter] | None] = {}
        self.meters = Meters()

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
        followed = len(self.meters.followed)
        key = (frame.f_code, frame.f_lasti)
        if key not in self._sites:
            found = None
            if is_users(frame.f_code):

                def is_meter(name: str, method: str) -> bool:
                    return self.meters.takes(_value(frame, name), method)

                found = only_summed_and_shown(frame.f_code, frame.f_lineno, is_meter)
            self._sites[key] = found
            if found is not None:
                self._situation.note(NAME, f"at line {frame.f_lineno} of {_name(frame.f_code)}")
        meters = self._sites[key]
        # A name may be another object's by now.
        return (
            meters is not None
            and all(self.meters.takes(_value(frame, name), method) for name, method in meters)
            # Of one that is new the method that is called now was looked up before.
            and len(self.meters.followed) == followed
        )


def _value(frame: Any, name: str) -> Any:
    """Of a name where the frame is; None, which is no meter, where it has none yet."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:  # a module
        return frame.f_locals.get(name)
    names = frame.f_locals
    value = names.get(name, frame.f_globals.get(name))
    if type(names) is dict and not _LOOKS.intersection(code.co_names):
        # Before Python 3.13 the frame keeps it, and with it tensors that the script lets go.
        names.clear()
    return value


def _name(code: CodeType) -> str:
    return code.co_filename.rpartition("/")[2]


FIX = Fix(
    NAME, "E", ".item() for a log does not wait for the device", ("sync-each-step",), applies,
    apply,
)  # fmt: skip
