"""Passes on a device with its switches turned: lower precision, measured kernels."""

from collections.abc import Iterator
from typing import Any

import torch

from slipstream.doctor.record.stopwatch import Work


def on_device(
    now: Work, model: Any, facts: dict[str, Any], about: dict[str, Any]
) -> Iterator[tuple[str, Work, Work, dict[str, Any]]]:
    """Each switch that is off, against the same pass with it on."""
    has_tensor_cores = torch.cuda.get_device_capability()[0] >= 8
    is_single = facts["dtypes"] == ["float32"]
    with_autocast = any(mode["autocast"] for mode in facts["modes"].values())
    if has_tensor_cores and is_single and not with_autocast:
        if torch.get_float32_matmul_precision() == "highest":
            yield "tf32", _precise(now, "highest"), _precise(now, "high"), about
        yield "amp", now, _in_bfloat16(now), about
    if facts["convolutions"] and not torch.backends.cudnn.benchmark:
        _searching(now, True)()  # the search takes long, once
        yield "cudnn-benchmark", _searching(now, False), _searching(now, True), about


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


def _searching(work: Work, benchmark: bool) -> Work:
    def run() -> object:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = benchmark
        try:
            return work()
        finally:
            torch.backends.cudnn.benchmark = before

    return run
