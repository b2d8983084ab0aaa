"""A loader's workers and its loop as a game of queues: what a step takes if batches took other
times, if there were more workers, or if they were further ahead.
"""

import heapq
import itertools
from collections.abc import Sequence


def step_ms(
    batches_ms: Sequence[float], rest_ms: float, workers: int, prefetch: int, *,
    in_order: bool = True,
) -> float:  # fmt: skip
    """The mean time of a step, from the first batch's arrival to the last's.

    Batch k is made by worker k modulo their number, as torch hands them out. A worker begins a
    batch when it is free and no more than `workers * prefetch` are on their way.
    """
    if not batches_ms:
        return rest_ms
    ahead = workers * prefetch
    free = [0.0] * workers
    asked = [0.0] * min(ahead, len(batches_ms))  # when each batch was asked for
    ready: list[float] = []
    waiting: list[float] = []
    taken: list[float] = []
    now = 0.0
    begun = 0
    for k in range(len(batches_ms)):
        while begun < len(asked):
            worker = begun % workers
            start = max(free[worker], asked[begun])
            free[worker] = start + batches_ms[begun]
            ready.append(free[worker])
            heapq.heappush(waiting, free[worker])
            begun += 1
        arrival = ready[k] if in_order else heapq.heappop(waiting)
        now = max(now, arrival)
        taken.append(now)
        if len(asked) < len(batches_ms):
            asked.append(now)
        now += rest_ms
    gaps = [after - before for before, after in itertools.pairwise(taken)]
    warm = gaps[min(len(gaps) // 3, ahead) :]
    return sum(warm) / len(warm) if warm else rest_ms
