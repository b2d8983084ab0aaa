"""oneDNN, switched off for a while, by as many threads as want it: the last one puts it back."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Inside:
    """One who is; gone with its block, even where an alarm has ended that at any point."""


_lock = threading.Lock()
_inside: "weakref.WeakSet[_Inside]" = weakref.WeakSet()
_before = [True]  # what the first one found


@contextmanager
def without_onednn() -> Iterator[None]:
    """torch computes with its own kernels and BLAS inside.

    >>> with without_onednn():
    ...     torch._C._get_mkldnn_enabled()
    False
    """
    one = _Inside()
    try:
        with _lock:
            if not _inside:
                _before[0] = torch._C._get_mkldnn_enabled()
            _inside.add(one)
            torch._C._set_mkldnn_enabled(False)
        yield
    finally:
        with _lock:
            _inside.discard(one)
            if not _inside:
                torch._C._set_mkldnn_enabled(_before[0])
