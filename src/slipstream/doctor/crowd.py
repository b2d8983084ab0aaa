"""Whether other programs took cores that a script needed."""

from collections.abc import Mapping

_FULL = 0.9  # of the cores that there are
_FELT = 0.1  # of them, by others


def crowded(used: Mapping[str, float] | None) -> str | None:
    """In words; None where there was room for all. `used` are cores on average: `own` and `others`
    of `cores`.

    >>> crowded({"own": 1.0, "others": 0.5, "cores": 8})
    >>> crowded({"own": 1.2, "others": 0.8, "cores": 2})
    'other programs took 0.8 of 2 cores meanwhile'
    """
    if not used:
        return None
    own, others, cores = used["own"], used["others"], used["cores"]
    if others < _FELT * cores or own + others < _FULL * cores:
        return None
    return f"other programs took {others:.1f} of {cores:g} cores meanwhile"
