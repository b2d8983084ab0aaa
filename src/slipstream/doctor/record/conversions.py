"""Times copies of data from Python and NumPy to torch, while samples are read and only then."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from slipstream.doctor.record.stages import StageLog

STAGE = "convert: torch.tensor"


@contextmanager
def time_conversions(log: StageLog) -> Iterator[None]:
    """`torch.tensor` as a stage. Left alone elsewhere: a compiled model must find the original."""
    original = torch.tensor

    def tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
        # Of a single number it is no copy worth timing.
        if isinstance(data, (int, float)):
            return original(data, *args, **kwargs)
        return log.call(STAGE, original, data, *args, **kwargs)

    torch.tensor = tensor
    try:
        yield
    finally:
        torch.tensor = original
