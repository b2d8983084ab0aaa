"""What a process that was forked has from the one that forked it, beside the dataset, and what may
be another one by the next batch.
"""

import os
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.utils._device


def surroundings() -> tuple[Any, ...]:
    """To be compared by ==, in some microseconds."""
    place = ""
    with suppress(OSError):  # deleted
        place = os.getcwd()  # noqa: PTH109
    return (
        torch.get_default_dtype(), getattr(torch.utils._device, "CURRENT_DEVICE", None),
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), np.geterr(), place,
        _environment(),
    )  # fmt: skip


def _environment() -> dict[Any, Any]:
    # As it lies there: to decode every variable would take longer than all the rest.
    kept = getattr(os.environ, "_data", None)
    return dict(kept if isinstance(kept, dict) else os.environ)
