"""`Timer` on a real GPU."""

import subprocess
import sys

import pytest
import torch

from slipstream.timer import Timer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_queued_work_is_waited_for() -> None:
    def passed_s(device: str | None) -> float:
        torch.cuda.synchronize()
        with Timer(device=device) as timer:
            torch.cuda._sleep(200_000_000)  # cycles
        torch.cuda.synchronize()
        return timer.seconds

    passed_s(None)
    assert passed_s("cpu") < 0.01
    assert passed_s(None) > 0.05
    assert passed_s("cuda:0") > 0.05


def test_timing_does_not_start_a_gpu() -> None:
    script = """
import torch
from slipstream import Timer
for device in (None, "cuda", "cuda:0"):
    with Timer(device=device):
        pass
print(torch.cuda.is_initialized())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "False\n"
