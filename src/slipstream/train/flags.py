"""torch's switches of a GPU, for as long as a step takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from slipstream.train.choices import Choices


@contextmanager
def flags_of(choices: Choices) -> Iterator[None]:
    """As chosen inside, as before behind."""
    wanted: list[tuple[Any, str]] = []
    if choices.cudnn_benchmark:
        wanted.append((torch.backends.cudnn, "benchmark"))
    if choices.precision == "tf32":
        wanted += [(torch.backends.cuda.matmul, "allow_tf32"), (torch.backends.cudnn, "allow_tf32")]
    before = [(place, name, getattr(place, name)) for place, name in wanted]
    for place, name in wanted:
        setattr(place, name, True)
    try:
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
