"""Passes on a device with its switches turned: lower precision, measured kernels."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from slipstream.doctor.record.stopwatch import Work

_FEWEST_ROWS = 8


_Like = Callable[[int], Work]


def on_device(
    now: Work, like: _Like, facts: dict[str, Any], about: dict[str, Any], batch: int
) -> Iterator[tuple[str, Work, Work, dict[str, Any]]]:
    """Each switch that is off, against the same pass with it on. `like` makes a pass with so many
    rows of the batch.
    """
    has_tensor_cores = torch.cuda.get_device_capability()[0] >= 8
    is_single = facts["dtypes"] == ["float32"]
    with_autocast = any(mode["autocast"] for mode in facts["modes"].values())
    if has_tensor_cores and is_single and not with_autocast:
        if torch.get_float32_matmul_precision() == "highest":
            yield "tf32", _precise(now, "highest"), _precise(now, "high"), about
        yield "amp", now, _in_bfloat16(now), about
    if facts["convolutions"] and not torch.backends.cudnn.benchmark:
        fewer = batch - (8 if batch >= 64 else 1)
        if fewer >= _FEWEST_ROWS:
            # A shape that cuDNN has seen keeps its algorithm; one of its own is searched for.
            searched = _searching(like(fewer))
            searched()  # the search takes long, once
            yield "cudnn-benchmark", now, searched, {**about, "rows": [batch, fewer]}


def _precise(work: Work, precision: str) -> Work:
    def run() -> object:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            return work()
        finally:
            torch.set_float32_matmul_precision(before)

    return run


def _in_bfloat16(work: Work) -> Work:
    def run() -> object:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return work()

    return run


def _searching(work: Work) -> Work:
    def run() -> object:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            return work()
        finally:
            torch.backends.cudnn.benchmark = before

    return run
