"""`non-blocking-copies`: the loop does not wait while a batch goes to the device.

A tensor is first copied into page-locked memory of torch's own allocator, which keeps it until the
device has read it; the script may overwrite or drop its own tensor at once, as before. Only from
the processor to a device, never back: what comes back is read at once. Memory that is page-locked
already is left alone: the device may be about to write to it. Copies of the script's own that it
has not waited for are waited for still. Only where the script has no streams of its own, as another
stream would have to wait for the copy.
"""

from typing import Any

import torch

from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.staging import Switch, can_be_staged, is_usual_stream, to_device, wanted
from slipstream.run.unawaited import unawaited

NAME = "non-blocking-copies"
RULES = ("pageable-copy",)
_OFTEN = 8  # copies in the recording


def applies(situation: Situation) -> tuple[bool, str]:
    """Where the loop waits for copies to a device."""
    if not situation.on_device:
        return False, "nothing is copied to a device"
    waits = [
        call
        for call in situation.capture.calls
        if call.what in ("Tensor.to", "Tensor.cuda") and _staged_often(call.facts)
    ]
    if not waits:
        return False, "no copies to the device that the loop waits for"
    return True, f"{waits[0].what} at {waits[0].where} waits for the device"


def _staged_often(facts: dict[str, Any]) -> bool:
    return bool(min(facts.get("blocking", 0), facts.get("pageable", 0)) >= _OFTEN)


def apply(situation: Situation) -> Undo:
    """Of plain tensors."""
    copies = _Copies(situation)
    leave = unawaited.follow()
    patches = Patches()
    patches.replace(torch.Tensor, "to", copies.wrap_to)
    patches.replace(torch.Tensor, "cuda", copies.wrap_cuda)
    patches.replace(torch.cuda.Stream, "__new__", copies.switch.wrap_stream)

    def undo() -> None:
        patches.undo()
        leave()

    return undo


class _Copies:
    def __init__(self, situation: Situation) -> None:
        self.switch = Switch(situation, NAME)

    def wrap_to(self, original: Any) -> Any:
        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self.switch.is_on and can_be_staged(tensor):
                device = target_of(args, kwargs)
                if device is not None:
                    sent = self._send(tensor, device)
                    if sent is not None:
                        return sent
            return original(tensor, *args, **kwargs)

        return to

    def wrap_cuda(self, original: Any) -> Any:
        def cuda(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            # With an argument it is left to .to, as most scripts do.
            if self.switch.is_on and not args and not kwargs and can_be_staged(tensor):
                sent = self._send(tensor, torch.device("cuda"))
                if sent is not None:
                    return sent
            return original(tensor, *args, **kwargs)

        return cuda

    def _send(self, tensor: torch.Tensor, device: torch.device) -> Any:
        """None where it is better done as written."""
        try:
            if tensor.is_pinned() or not is_usual_stream(device):
                return None
            sent = to_device(tensor.pin_memory(), device, non_blocking=True)
            unawaited.wait()
            return sent
        except Exception as error:
            self.switch.give_up(error)
            return None


def target_of(args: Any, kwargs: Any) -> torch.device | None:
    """The CUDA device that `.to` is asked to wait for."""
    asked = wanted(args, kwargs)
    return None if asked is None or asked[1] else asked[0]


FIX = Fix(NAME, "E", "batches go to the device while the loop goes on", RULES, applies, apply)
