"""What happens to samples that cannot be had: raise, leave them out, or take a neighbour."""

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.errors import CorruptDataset, SlipstreamError, UsageError

POLICIES = ("raise", "skip", "substitute")
# A run that loses more than this is not training on its data any more.
SHARE_LIMIT = 0.05
FREE_FAILURES = 16
NEIGHBOURS = 16


class TooManyBadSamples(SlipstreamError, RuntimeError):
    """So many samples are bad that the data, not a sample, must be looked at."""


class NoNeighbour(SlipstreamError, RuntimeError):
    """Neither a sample nor those that follow it can be had."""


class NothingLeft(SlipstreamError, RuntimeError):
    """A batch of bad samples only, where leaving it out would leave other ranks waiting."""


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that could not be had: its number, the epoch, why, and what was taken instead."""

    index: Any
    epoch: int
    reason: str
    substitute: int | None = None

    def __str__(self) -> str:
        taken = "left out" if self.substitute is None else f"sample {self.substitute} instead"
        return f"sample {self.index}, epoch {self.epoch}: {self.reason} ({taken})"


class BadSamples(list[BadSample]):
    """All that were met so far. Raises when they are more than `SHARE_LIMIT` of what was read."""

    def __init__(self) -> None:
        super().__init__()
        self._read = 0
        self._bad = 0

    def note(self, read: int, bad: Sequence[BadSample]) -> None:
        """Count samples read, good and bad. Raises `TooManyBadSamples`."""
        self._read += read
        self._bad += len(bad)
        self.extend(bad)
        if bad and self._bad > FREE_FAILURES and self._bad > SHARE_LIMIT * self._read:
            raise TooManyBadSamples(
                f"{self._bad} of {self._read} samples are bad, more than {SHARE_LIMIT:.0%}. The"
                f" last: {bad[-1]}. Look at loader.bad_samples and mend the data."
            )


def neighbours(index: int, count: int) -> list[int]:
    """Those of `count` samples that may stand in for one, in order.

    >>> neighbours(2, 4)
    [3, 0, 1]
    """
    return [(index + step) % count for step in range(1, min(NEIGHBOURS, count - 1) + 1)]


class Refusal(str):
    """What is said of a sample that is well, but that the transform cannot take."""

    __slots__ = ()


def error_of(errors: Mapping[int, str], count: int, where: Callable[[int], str]) -> SlipstreamError:
    """The error of a batch of `count` samples of which the first bad one is not to be left out: a
    mistake of whoever wrote the transform where that refuses all of them. `where` names a place.
    """
    place = min(errors)
    if len(errors) == count and all(isinstance(reason, Refusal) for reason in errors.values()):
        others = f", nor any other of the {count} samples of this batch" if count > 1 else ""
        return UsageError(
            f"{where(place)}: {errors[place]}. The transform does not fit this sample{others}:"
            " change it, or the data."
        )
    return CorruptDataset(
        errors[place], where=where(place), do='on_error="skip" or "substitute" goes on without it.'
    )


def describe(error: BaseException) -> str:
    """An error in one line.

    >>> describe(ValueError("no such file"))
    'ValueError: no such file'
    """
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def fetch_guarded(
    read: Callable[[Any, int], Any], indices: Sequence[Any], count: int, epoch: int, policy: str
) -> tuple[list[Any], list[BadSample]]:
    """Read samples one by one, by number and place in the batch; an exception or None makes a
    sample bad. `policy` is "skip" or "substitute". A neighbour is a function of the number alone,
    so that every run takes the same.
    """
    samples: list[Any] = []
    bad: list[BadSample] = []
    for place, index in enumerate(indices):
        sample, reason = _try(read, index, place)
        if reason is None:
            samples.append(sample)
            continue
        taken = None
        if policy == "substitute":
            sample, taken = _find_neighbour(read, index, place, count, reason)
            samples.append(sample)
        bad.append(BadSample(index, epoch, reason, taken))
    return samples, bad


def _try(read: Callable[[Any, int], Any], index: Any, place: int) -> tuple[Any, str | None]:
    try:
        sample = read(index, place)
    except Exception as error:  # whatever the user's dataset raises
        return None, describe(error)
    return sample, "the dataset returned None" if sample is None else None


def _find_neighbour(
    read: Callable[[Any, int], Any], index: Any, place: int, count: int, reason: str
) -> tuple[Any, int]:
    with contextlib.suppress(TypeError):
        for other in neighbours(operator.index(index), count):
            sample, trouble = _try(read, other, place)
            if trouble is None:
                return sample, other
    raise NoNeighbour(
        f"Sample {index} is bad ({reason}), and so are the {NEIGHBOURS} after it. Mend the data, or"
        ' use on_error="skip".'
    )
