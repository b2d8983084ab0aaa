"""Fixes that had nothing to do."""

from collections.abc import Iterable, Iterator

from slipstream.run.fix import Situation

IDLE = "there was nothing to do for it"
_AHEAD = "parallel-loading"
_IN_OTHERS = f"the processes of {_AHEAD} make the batches"
# Fixes that say what they did: without a word of theirs there was nothing to do.
_AT_ONCE = (
    "fast-loader", "shared-lists", "device-prefetch", "contiguous-inputs", "foreach-loops",
    "foreach-optimizer", "native-optimizer", "uint8-bus",
)  # fmt: skip
_AT_ANY_TIME = ("inference-mode", "deferred-values", "async-save")


def idle(names: Iterable[str], situation: Situation) -> Iterator[tuple[str, str]]:
    """Those of `names` in a whole run, each with its reason."""
    is_ahead = _AHEAD in situation.notes and not situation.did_nothing(_AHEAD)
    for name in names:
        if name in {*_AT_ONCE, *_AT_ANY_TIME} - set(situation.notes):
            yield name, _IN_OTHERS if name == "fast-loader" and is_ahead else IDLE


def idle_in_trial(names: Iterable[str], situation: Situation) -> Iterator[tuple[str, str]]:
    """Those that will find nothing to do later, either."""
    return ((name, why) for name, why in idle(names, situation) if name in _AT_ONCE and why == IDLE)
