"""What is kept of batches and losses to compare runs by: little, and never at the script's risk."""

import hashlib
import math
import uuid
from typing import Any

import numpy as np
import torch

_UNREAD = "?"
_PART = 1 << 20  # numbers that are summed at once: each takes 8 bytes meanwhile


def digest(batch: Any) -> str:
    """Of all tensors and values of a batch, wherever they lie. That of one that cannot be read is
    like no other, see `is_read`.

    >>> digest([torch.zeros(2), {"a": 1}]) == digest((torch.zeros(2), {"a": 1}))
    False
    >>> digest(torch.zeros(2)) == digest(torch.zeros(2))
    True
    """
    found = hashlib.blake2b(digest_size=16)
    try:
        _add(found, batch, [])
    except Exception:  # by classes of anyone, in the middle of the script
        return f"{_UNREAD}{uuid.uuid4().hex}"
    return found.hexdigest()


def is_read(digest_or_loss: str) -> bool:
    """Whether it says anything about its batch, or is the value of a loss."""
    return not digest_or_loss.startswith(_UNREAD)


def root_of(tensors: Any) -> torch.Tensor | None:
    """Of what a backward pass is given, the first tensor; edges of the graph have no value."""
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    return first if isinstance(first, torch.Tensor) else None


def kept(root: torch.Tensor) -> torch.Tensor:
    """A single number for what a backward pass begins with: itself, or the sum of an activation.
    It is left on its device, which nobody waits for.
    """
    try:
        data = root.detach()
        if data.is_complex():
            data = torch.view_as_real(data.resolve_conj())
        return data.clone() if data.numel() == 1 else _sum(data)
    except Exception:
        return torch.empty(0, device="cpu")


def told(number: torch.Tensor) -> str:
    """What was kept, as `float.hex`; see `is_read` where it has no value.

    >>> told(torch.tensor(0.5)), told(torch.empty((), device="meta"))
    ('0x1.0000000000000p-1', '?')
    """
    try:
        return float(number).hex()
    except Exception:
        return _UNREAD


def number_of(loss: str) -> float:
    """What `told` was given; not a number where that had no value."""
    return float.fromhex(loss) if is_read(loss) else math.nan


def _sum(data: torch.Tensor) -> torch.Tensor:
    """In parts, as torch copies what it sums in another precision."""
    wide = torch.float32 if data.device.type == "mps" else torch.float64
    if data.numel() <= _PART:
        return data.sum(dtype=wide)
    longest = max(range(data.ndim), key=lambda dim: data.shape[dim])
    parts = data.chunk(-(-data.numel() // _PART), longest)
    return torch.stack([part.sum(dtype=wide) for part in parts]).sum()


def _add(found: Any, thing: Any, above: list[int]) -> None:
    """`above` are the objects that it lies in: one of these may be met again."""
    if isinstance(thing, torch.Tensor):
        _add_tensor(found, thing, above)
    elif isinstance(thing, (np.ndarray, np.generic)):
        _add_array(found, thing, above)
    elif isinstance(thing, (bytes, bytearray)):
        found.update(f"{type(thing).__name__}{len(thing)}".encode())
        found.update(thing)
    elif isinstance(thing, (str, int, float, complex)):
        found.update(f"{type(thing).__name__}{thing!r}".encode())
    elif hasattr(thing, "tobytes") and hasattr(thing, "getbands"):
        found.update(f"{thing.mode}{thing.size}".encode())
        found.update(thing.tobytes())
    elif id(thing) in above:
        found.update(f"above{above.index(id(thing))}".encode())
    else:
        above.append(id(thing))
        _add_parts(found, thing, above)
        above.pop()


def _add_parts(found: Any, thing: Any, above: list[int]) -> None:
    if isinstance(thing, dict):
        found.update(f"{type(thing).__name__}{len(thing)}".encode())
        for key, item in thing.items():
            found.update(repr(key).encode())
            _add(found, item, above)
    elif isinstance(thing, (list, tuple)):
        found.update(f"{type(thing).__name__}{len(thing)}".encode())
        for item in thing:
            _add(found, item, above)
    elif hasattr(thing, "__dict__") and not isinstance(thing, type):
        found.update(type(thing).__name__.encode())
        _add(found, vars(thing), above)
    else:
        found.update(repr(thing).encode())


def _add_tensor(found: Any, tensor: torch.Tensor, above: list[int]) -> None:
    if tensor.is_nested:
        found.update(b"nested")
        _add(found, list(tensor.detach().unbind()), above)
        return
    found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    if tensor.device.type == "meta":
        return
    data = tensor.detach().cpu().resolve_conj().resolve_neg()
    if data.layout is not torch.strided:
        data = data.to_dense()
    found.update(data.contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _add_array(found: Any, array: Any, above: list[int]) -> None:
    found.update(f"{type(array).__name__}{array.dtype}{array.shape}".encode())
    if array.dtype.hasobject:
        _add(found, array.tolist(), above)
    else:
        found.update(array.tobytes())
