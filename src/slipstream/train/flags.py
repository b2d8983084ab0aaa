"""torch's switches of a GPU and of oneDNN, for as long as a step takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from slipstream.tf32 import allow_tf32, restore_tf32
from slipstream.train.choices import Choices


@contextmanager
def flags_of(choices: Choices) -> Iterator[None]:
    """As chosen inside, as before behind."""
    benchmark = torch.backends.cudnn.benchmark
    if choices.cudnn_benchmark:
        torch.backends.cudnn.benchmark = True
    onednn = torch._C._get_mkldnn_enabled()
    if choices.own_kernels:
        torch._C._set_mkldnn_enabled(False)
    before = allow_tf32() if choices.precision == "tf32" else None
    try:
        yield
    finally:
        if choices.cudnn_benchmark:
            torch.backends.cudnn.benchmark = benchmark
        if choices.own_kernels:
            torch._C._set_mkldnn_enabled(onednn)
        if before is not None:
            restore_tf32(before)


def tf32_of(place: Any) -> bool:
    """Whether `torch.backends.cudnn` or `torch.backends.cuda.matmul` has it on. torch refuses to
    say so where it was set by `fp32_precision`.
    """
    try:
        return bool(place.allow_tf32)
    except RuntimeError:
        return bool(getattr(place, "fp32_precision", "") == "tf32")
