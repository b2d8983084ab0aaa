"""What a process that was forked has from the one that forked it, beside the dataset, and what may
be another one by the next batch.
"""

import decimal
import logging
import os
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.utils._device

_AUTOCAST_DEVICES = ("cpu", "cuda")
_TINY = np.float32(1e-40)


def surroundings() -> tuple[Any, ...]:
    """To be compared by ==, in some microseconds."""
    place = ""
    with suppress(OSError):  # deleted
        place = os.getcwd()  # noqa: PTH109
    return (
        place,
        _environment(),
        *_of_torch(),
        *_of_numbers(),
        _takes_torn_files(),
        *_of_records(),
    )


def _environment() -> dict[Any, Any]:
    # As it lies there: to decode every variable would take longer than all the rest.
    kept = getattr(os.environ, "_data", None)
    return dict(kept if isinstance(kept, dict) else os.environ)


def _of_torch() -> tuple[Any, ...]:
    casts = [
        (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in _AUTOCAST_DEVICES
    ]
    return (
        torch.get_default_dtype(), getattr(torch.utils._device, "CURRENT_DEVICE", None),
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads(), casts,
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
        torch._C._get_mkldnn_enabled(),
    )  # fmt: skip


def _of_numbers() -> tuple[Any, ...]:
    context = decimal.getcontext()
    return (
        np.geterr(), np.get_printoptions(), bool(_TINY * 1), context.prec, context.rounding,
    )  # fmt: skip


def _takes_torn_files() -> bool:
    """Whether Pillow makes pictures of them."""
    return bool(getattr(sys.modules.get("PIL.ImageFile"), "LOAD_TRUNCATED_IMAGES", False))


def _of_records() -> tuple[Any, ...]:
    """Which of them `logging` keeps."""
    manager = logging.root.manager
    settings = [
        (id(one), one.level, one.disabled, [handler.level for handler in one.handlers])
        for one in _loggers()
        if one.level or one.handlers or one.disabled
    ]
    root = logging.root
    return manager.disable, root.level, [handler.level for handler in root.handlers], settings


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.copy()
    return [one for one in known.values() if type(one) is not logging.PlaceHolder]  # type: ignore[misc]
