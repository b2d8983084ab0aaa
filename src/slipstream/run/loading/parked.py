"""Processes that have made batches of one iteration and wait for the next one of their loader."""

import weakref

from slipstream.run.loading.crew import Crew
from slipstream.run.loading.knowledge import Knowledge

_MOST = 2  # loaders: of training and of validation
_parked: list[weakref.ref[Knowledge]] = []


def park(known: Knowledge, crew: Crew) -> None:
    """Until the loader is asked again, or is gone. Those that have waited longest end."""
    end(known)
    known.crew = crew
    _parked.append(weakref.ref(known))
    _end_each(_parked[:-_MOST])


def take(known: Knowledge) -> Crew | None:
    """Those that wait for this loader, which from now on are the caller's."""
    crew, known.crew = known.crew, None
    _parked[:] = [one for one in _parked if one() not in (None, known)]
    return crew


def end(known: Knowledge) -> None:
    """Those of this loader."""
    if (crew := take(known)) is not None:
        crew.close()


def end_all() -> None:
    """Of all loaders."""
    _end_each([*_parked])


def _end_each(references: list[weakref.ref[Knowledge]]) -> None:
    for reference in references:
        if (known := reference()) is not None:
            end(known)
