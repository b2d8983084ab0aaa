"""Tests of training steps: one thread, as cores may be busy, and trainings of few steps."""

from collections.abc import Iterator

import pytest
import torch

from slipstream import timing
from slipstream.train import judge, search, training, trial
from tests.clock import replace_clock


@pytest.fixture(autouse=True, scope="module")
def briefly() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "MOST", 32)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def told_times() -> Iterator[None]:
    """Steps take as long as they say."""
    with pytest.MonkeyPatch.context() as patch:
        replace_clock(patch, timing, trial, judge, search)
        yield
