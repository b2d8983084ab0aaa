"""What fixes for copies to a device have in common: which can be made in another way, and when."""

import sys
from typing import Any

import torch

from slipstream.doctor.record.places import is_users
from slipstream.run.fix import Situation

to_device = torch._C.TensorBase.to  # as it is without fixes
LEAST, MOST = 1 << 12, 1 << 28  # bytes: less is not worth it, more may not fit


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


def wanted(args: Any, kwargs: Any) -> tuple[torch.device, bool] | None:
    """The CUDA device that `.to` is asked for, and whether it need not wait; None where it is asked
    for anything more.

    >>> wanted(("cuda:1",), {"non_blocking": True})
    (device(type='cuda', index=1), True)
    >>> wanted((torch.float16,), {}) is wanted(("cpu",), {}) is wanted((), {"copy": True}) is None
    True
    """
    if set(kwargs) - {"device", "non_blocking"} or len(args) > 1:
        return None
    target = args[0] if args else kwargs.get("device")
    if isinstance(target, int) and not isinstance(target, bool):
        device = torch.device("cuda", target)
    elif isinstance(target, (str, torch.device)):
        device = torch.device(target)
    else:
        return None
    return (device, bool(kwargs.get("non_blocking"))) if device.type == "cuda" else None


def is_usual_stream(device: torch.device) -> bool:
    """Whether work goes to the device's own stream, and no graph is made of it."""
    if torch.cuda.is_current_stream_capturing():
        return False
    return bool(torch.cuda.current_stream(device) == torch.cuda.default_stream(device))


class Switch:
    """On until a fix fails, or the script makes streams of its own: those would not wait."""

    def __init__(self, situation: Situation, fix: str) -> None:
        self._situation, self._fix = situation, fix
        self.is_on = True

    def wrap_stream(self, original: Any) -> Any:
        """Of `torch.cuda.Stream.__new__`."""

        def new(kind: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_on and is_users(sys._getframe(1).f_code):
                self.is_on = False
                self._situation.note(self._fix, "off, as the script has streams of its own")
            return original(kind, *args, **kwargs)

        return staticmethod(new)

    def give_up(self, error: BaseException) -> None:
        """The fix failed."""
        self.is_on = False
        self._situation.give_up(self._fix, error)
