"""TF32, which torch knows by two names; the older cannot be read where the newer one was set."""

from contextlib import AbstractContextManager
from typing import Any

import torch

from slipstream.switch import Switch

_PARTS = ("conv", "rnn")  # of cuDNN

# Places with the values that they had, to be set again in this order.
Settings = list[tuple[Any, str, Any]]


def tf32_settings() -> Settings:
    """What is set: newer names last, as torch wants both to agree."""
    backends: Any = torch.backends
    found: Settings = []
    for place in (backends.cuda.matmul, backends.cudnn):
        try:
            found.append((place, "allow_tf32", place.allow_tf32))
        except RuntimeError:  # set by the newer name, and to be kept so
            continue
    for place in (backends.cuda.matmul, *(getattr(backends.cudnn, n, None) for n in _PARTS)):
        if hasattr(place, "fp32_precision"):
            found.append((place, "fp32_precision", place.fp32_precision))
    return found


def allow_tf32() -> Settings:
    """For matrix products and convolutions. Returns what was there."""
    before = tf32_settings()
    old = [entry for entry in before if entry[1] == "allow_tf32"]
    for place, name, _ in old:
        setattr(place, name, True)
    if len(old) < 2:
        for place, name, _ in before[len(old) :]:
            setattr(place, name, "tf32")
    return before


def restore_tf32(before: Settings) -> None:
    """Set again what is another now."""
    if tf32_settings() != before:
        for place, name, value in before:
            setattr(place, name, value)


_allowed = Switch(tf32_settings, allow_tf32, restore_tf32)


def with_tf32() -> AbstractContextManager[None]:
    """Allowed inside."""
    return _allowed()


def tf32_of(place: Any) -> bool:
    """Whether `torch.backends.cudnn` or `torch.backends.cuda.matmul` has it on. torch refuses to
    say so where it was set by `fp32_precision`.
    """
    try:
        return bool(place.allow_tf32)
    except RuntimeError:
        return bool(getattr(place, "fp32_precision", "") == "tf32")


def tf32_words() -> str:
    """How it is set, for whoever reads times: products and convolutions are set by themselves.

    >>> tf32_words()
    'TF32 is off for matrix products, on for convolutions'
    """
    places = (torch.backends.cuda.matmul, torch.backends.cudnn)
    products, convolutions = ("on" if tf32_of(place) else "off" for place in places)
    return f"TF32 is {products} for matrix products, {convolutions} for convolutions"
