"""`non-blocking-copies`: the loop does not wait while a batch goes to the device.

A tensor is first copied into page-locked memory of torch's own allocator, which keeps it until the
device has read it; the script may overwrite or drop its own tensor at once, as before. Only from
the processor to a device, never back: what comes back is read at once. Memory that is page-locked
already is left alone: the device may be about to write to it. Only where the script has no streams
of its own, as another stream would have to wait for the copy.
"""

import sys
from typing import Any

import torch

from slipstream.doctor.record.places import is_users
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo

NAME = "non-blocking-copies"
RULES = ("blocking-copy", "pageable-copy")
LEAST, MOST = 1 << 12, 1 << 28  # bytes: less is not worth it, more may not fit
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
    patches = Patches()
    patches.replace(torch.Tensor, "to", copies.wrap_to)
    patches.replace(torch.Tensor, "cuda", copies.wrap_cuda)
    patches.replace(torch.cuda.Stream, "__new__", copies.wrap_stream)
    return patches.undo


class _Copies:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._is_on = True

    def wrap_to(self, original: Any) -> Any:
        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_on and can_be_staged(tensor):
                device = target_of(tensor, args, kwargs)
                if device is not None:
                    sent = self._send(original, tensor, device)
                    if sent is not None:
                        return sent
            return original(tensor, *args, **kwargs)

        return to

    def wrap_cuda(self, original: Any) -> Any:
        def cuda(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            # With an argument it is left to .to, as most scripts do.
            if self._is_on and not args and not kwargs and can_be_staged(tensor):
                sent = self._send(torch.Tensor.to, tensor, torch.device("cuda"))
                if sent is not None:
                    return sent
            return original(tensor, *args, **kwargs)

        return cuda

    def wrap_stream(self, original: Any) -> Any:
        def new(kind: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_on and is_users(sys._getframe(1).f_code):
                self._is_on = False
                self._situation.note(NAME, "off, as the script has streams of its own")
            return original(kind, *args, **kwargs)

        return staticmethod(new)

    def _send(self, to: Any, tensor: torch.Tensor, device: torch.device) -> Any:
        """None where it is better done as written."""
        try:
            if torch.cuda.is_current_stream_capturing() or tensor.is_pinned():
                return None
            if torch.cuda.current_stream(device) != torch.cuda.default_stream(device):
                return None
            return to(tensor.pin_memory(), device, non_blocking=True)
        except Exception as error:
            self._is_on = False
            self._situation.give_up(NAME, error)
            return None


def can_be_staged(tensor: Any) -> bool:
    """Whether it is a plain tensor of the processor that lies side by side."""
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and LEAST <= tensor.nbytes <= MOST
        and tensor.is_contiguous()
        and not torch.compiler.is_compiling()
    )


def target_of(tensor: torch.Tensor, args: Any, kwargs: Any) -> torch.device | None:
    """The CUDA device that `.to` is asked for; None where it is asked for anything more."""
    if set(kwargs) - {"device", "non_blocking"} or len(args) > 1:
        return None
    if kwargs.get("non_blocking"):
        return None  # asked for already
    target = args[0] if args else kwargs.get("device")
    if isinstance(target, int) and not isinstance(target, bool):
        return torch.device("cuda", target)
    if isinstance(target, str) and target.startswith("cuda"):
        return torch.device(target)
    is_cuda = isinstance(target, torch.device) and target.type == "cuda"
    return target if is_cuda else None


FIX = Fix(NAME, "E", "batches go to the device while the loop goes on", RULES, applies, apply)
