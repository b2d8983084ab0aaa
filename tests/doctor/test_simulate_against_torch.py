"""The simulation against torch's own DataLoader, with sleeps for work: a busy machine changes
little about them.
"""

import random
import time
from itertools import pairwise
from statistics import mean
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from slipstream.doctor.pipeline import Pipeline
from slipstream.doctor.simulate import simulate

_BATCHES = 80
_EVEN = (24.0,) * 4
_UNEVEN = (12.0,) * 9 + (120.0,)


class Sleepy(Dataset[torch.Tensor]):
    """Sample n takes a time of the list, in an order that has nothing to do with workers."""

    def __init__(self, times_ms: tuple[float, ...]) -> None:
        rounds = -(-_BATCHES // len(times_ms))
        draw = random.Random(3)
        shuffled = (draw.sample(times_ms, len(times_ms)) for _ in range(rounds))
        self.times_ms = [ms for one in shuffled for ms in one]

    def __len__(self) -> int:
        return _BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.times_ms[index] / 1000)
        return torch.zeros(1)


def _real_step_ms(times_ms: tuple[float, ...], loop_ms: float, **options: Any) -> float:
    loader = DataLoader(Sleepy(times_ms), **options)
    ends = []
    for _ in loader:
        time.sleep(loop_ms / 1000)
        ends.append(time.perf_counter())
    skip, tail = 10, loader.num_workers * (loader.prefetch_factor or 0)
    # No batch is sent for at the end: the last ones do not count.
    kept = ends[skip : len(ends) - tail]
    return 1000 * mean(after - before for before, after in pairwise(kept))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # sleepers need no cores
@pytest.mark.parametrize(
    ("workers", "prefetch", "times_ms", "in_order"),
    [
        (0, None, _EVEN, True),
        (1, 2, _EVEN, True),
        (2, 2, _EVEN, True),
        (4, 2, _EVEN, True),
        (2, 1, _UNEVEN, True),
        (2, 4, _UNEVEN, True),
        (2, 2, _UNEVEN, False),
    ],
)
def test_the_step_is_predicted(
    workers: int, prefetch: int | None, times_ms: tuple[float, ...], in_order: bool
) -> None:
    loop_ms = 10.0
    real = _real_step_ms(
        times_ms, loop_ms, num_workers=workers, prefetch_factor=prefetch, in_order=in_order
    )
    predicted = simulate(
        Pipeline(
            workers=workers,
            prefetch=prefetch or 2,
            batch_size=1,
            cores=2,
            fetch_ms=times_ms,
            fetch_cpu_share=0.0,
            loop_ms=(loop_ms,),
            loop_cores=0.0,
            hand_over_ms=1.0,  # what torch takes to unpickle a tensor, about
            in_order=in_order,
        )
    ).step_ms
    print(f"{workers=} {prefetch=} {in_order=} real {real:.1f} ms predicted {predicted:.1f} ms")
    assert predicted == pytest.approx(real, rel=0.2)
