"""oneDNN, switched off for a while."""

from contextlib import AbstractContextManager

import torch

from slipstream.switch import Switch

_off = Switch(
    torch._C._get_mkldnn_enabled,
    lambda: torch._C._set_mkldnn_enabled(False),
    torch._C._set_mkldnn_enabled,
)


def without_onednn() -> AbstractContextManager[None]:
    """torch computes with its own kernels and BLAS inside.

    >>> with without_onednn():
    ...     torch._C._get_mkldnn_enabled()
    False
    """
    return _off()
