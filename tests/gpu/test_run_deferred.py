"""`deferred-values` on a real GPU: nothing waits until a value is shown."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.doctor.capture import Capture
from slipstream.run.deferred.value import Deferred
from slipstream.run.fix import Situation
from slipstream.run.fixes import deferred_values

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SOURCE = """
def train(steps, weight, after):
    total = 0.0
    for step in range(steps):
        loss = (weight * step).sum()
        torch.cuda._sleep(20_000_000)
        total += loss.item()
        weight.mul_(1.01)
    after(torch)
    return total / steps
"""


def test_a_loop_goes_on_and_sums_the_same(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    names: dict[str, Any] = {"torch": torch}
    exec(compile(SOURCE, str(path), "exec"), names)
    ends: list[float] = []

    def run() -> float:
        weight = torch.arange(1000.0, device="cuda")
        torch.cuda.synchronize()
        began = time.perf_counter()
        result = names["train"](20, weight, lambda _: ends.append(time.perf_counter() - began))
        return float(result)

    run()
    expected = run()
    undo = deferred_values.apply(Situation({}, Capture("train.py", {}, "")))
    found = run()
    undo()
    assert found == expected
    assert ends[2] < ends[1] / 2


def test_the_tensor_may_change_at_once() -> None:
    from slipstream.run.deferred.value import deferred

    tensor = torch.ones((), device="cuda")
    torch.cuda._sleep(50_000_000)
    value = deferred(tensor)
    tensor.add_(1)
    assert type(value) is Deferred
    assert value == 1.0
