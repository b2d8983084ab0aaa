"""Tests of training steps: one thread, as cores may be busy, and trainings of few steps."""

from collections.abc import Iterator

import pytest
import torch

from slipstream.train import training


@pytest.fixture(autouse=True, scope="module")
def briefly() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "MOST", 32)
        yield
    torch.set_num_threads(threads)
