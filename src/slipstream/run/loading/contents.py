"""All that a dataset holds, as one number to compare: what a worker that is spawned would get."""

import hashlib
import pickle
from typing import Any

_MOST_BYTES = 32 << 20


class _TooMuch(Exception):
    """To look through before every epoch."""


class _Sink:
    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self._left = _MOST_BYTES

    def write(self, data: Any) -> int:
        self._left -= memoryview(data).nbytes
        if self._left < 0:
            raise _TooMuch
        self.digest.update(data)
        return len(data)


def contents(*things: Any) -> str:
    """Empty where that cannot be said: they are too large, or cannot be pickled.

    >>> contents([1]) == contents([1]) != contents([2])
    True
    >>> contents(lambda: 1)
    ''
    """
    sink = _Sink()
    try:
        pickle.Pickler(sink, protocol=5).dump(things)
    except Exception:
        return ""
    return sink.digest.hexdigest()
