"""Batches that take very different times: how bad it is, for the rules that ask why."""

import statistics
from dataclasses import dataclass

from slipstream.doctor.attribute import Loading
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import sample_times

_TIMES_AS_LONG = 3  # in bits: a slow sample takes at least eight times as long as usual
_LEAST_BITS = 11  # and more than a millisecond


@dataclass(frozen=True)
class SlowSamples:
    """The few that take far longer than the rest."""

    count: int
    share: float  # of all samples
    time_share: float  # of the time of all
    typical_ms: float
    slow_ms: float


def slow_samples(loading: Loading) -> SlowSamples | None:
    """None where samples take about the same time, or where most of them are slow."""
    shape = sample_times(loading)
    total = sum(shape.values())
    if total < 20:
        return None
    seen, typical = 0, 0
    for bits in sorted(shape):
        seen += shape[bits]
        if 2 * seen >= total:
            typical = bits
            break
    slow = {
        bits: count
        for bits, count in shape.items()
        if bits >= max(typical + _TIMES_AS_LONG, _LEAST_BITS)
    }
    count = sum(slow.values())
    if count < 2 or count > 0.2 * total:
        return None
    time = sum(_us(bits) * number for bits, number in slow.items())
    whole = sum(_us(bits) * number for bits, number in shape.items())
    return SlowSamples(count, count / total, time / whole, _us(typical) / 1000, time / count / 1000)


def _us(bits: int) -> float:
    """The middle of what has so many bits."""
    return 0.75 * 2.0**bits


def is_fast_enough(case: Case) -> bool:
    """Whether the workers could keep up if all batches took the same time."""
    loading = case.loading
    assert loading is not None
    return loading.batch_ms / max(1, loading.loader.workers) < 0.95 * case.rest_ms


def is_uneven(case: Case) -> bool:
    """Whether some batches take far longer than most."""
    times = case.batches_ms
    return len(times) >= 10 and max(times) > 2.5 * statistics.median(times)
