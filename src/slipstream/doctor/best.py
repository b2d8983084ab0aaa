"""The setting of a loader that the simulation likes best. Twin of web/src/best.ts."""

from collections.abc import Iterator
from dataclasses import replace

from slipstream.doctor.pipeline import Pipeline
from slipstream.doctor.simulate import simulate

_PREFETCH = (1, 2, 4, 8)
_AS_GOOD = 1.01  # a step this much longer is worth fewer workers and less memory


def settings(most_workers: int) -> Iterator[tuple[int, int]]:
    """Workers and prefetch to try, from little memory to much: the more workers, the coarser."""
    yield 0, _PREFETCH[1]
    workers = 1
    while workers <= most_workers:
        for prefetch in _PREFETCH:
            yield workers, prefetch
        workers += max(1, workers // 8)


def best_setting(pipeline: Pipeline, most_workers: int) -> tuple[int, int]:
    """Workers and prefetch with the fewest workers, then batches in memory, of all whose step is
    about as short as the shortest.
    """
    steps = {
        (workers, prefetch): simulate(replace(pipeline, workers=workers, prefetch=prefetch)).step_ms
        for workers, prefetch in settings(most_workers)
    }
    enough = _AS_GOOD * min(steps.values())
    return min(setting for setting, step_ms in steps.items() if step_ms <= enough)
