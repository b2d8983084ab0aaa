"""torch's switches of a GPU and of oneDNN, for as long as a step takes."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from slipstream.onednn import without_onednn
from slipstream.tf32 import with_tf32
from slipstream.train.choices import Choices


@contextmanager
def flags_of(choices: Choices) -> Iterator[None]:
    """As chosen inside, as before behind."""
    benchmark = torch.backends.cudnn.benchmark
    if choices.cudnn_benchmark:
        torch.backends.cudnn.benchmark = True
    try:
        with (
            with_tf32() if choices.precision == "tf32" else nullcontext(),
            without_onednn() if choices.own_kernels else nullcontext(),
        ):
            yield
    finally:
        if choices.cudnn_benchmark:
            torch.backends.cudnn.benchmark = benchmark
