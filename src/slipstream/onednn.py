"""oneDNN, switched off for a while, by as many threads as want it: the last one puts it back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_before: list[bool] = []  # what each found who is inside: the first one's counts


@contextmanager
def without_onednn() -> Iterator[None]:
    """torch computes with its own kernels and BLAS inside.

    >>> with without_onednn():
    ...     torch._C._get_mkldnn_enabled()
    False
    """
    with _lock:
        _before.append(torch._C._get_mkldnn_enabled())
        torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        with _lock:
            first = _before[0]
            _before.pop()
            if not _before:
                torch._C._set_mkldnn_enabled(first)
