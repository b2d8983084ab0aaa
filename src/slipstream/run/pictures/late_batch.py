"""Batches of pictures that are bytes until they are on a device.

A `LateBatch` is a float32[N, 3, H, W] of the processor's memory to whoever asks, and holds the
bytes that it is made from and what each byte becomes. On its way to a device the bytes are copied,
a quarter of the floats, and looked up there; any other use finds its values in their place, and
from then on the object is a plain tensor.
"""

from typing import Any, Protocol

import torch
from torch.nn.functional import embedding
from torch.utils._pytree import tree_map

from slipstream import _native

_set_class = vars(object)["__class__"].__set__
# What these tell needs no values.
_ATTRIBUTES = frozenset({
    "shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_leaf", "is_cuda", "is_cpu",
    "is_sparse", "is_nested", "is_quantized", "is_meta", "nbytes", "itemsize",
})  # fmt: skip
_METHODS = frozenset({
    "size", "dim", "ndimension", "numel", "nelement", "__len__", "stride", "is_contiguous",
    "element_size", "is_floating_point", "is_complex", "storage_offset", "get_device",
})  # fmt: skip
_OWN = ("_pixels", "_table", "_floats")
_HERE = ("cpu", "meta")


class Listener(Protocol):
    """Who is told what becomes of batches."""

    def sent(self) -> None:
        """One went to a device as bytes."""

    def used(self) -> None:
        """One was used before it was on a device."""

    def failed(self, error: Exception) -> None:
        """One could not go as bytes, and went as floats."""


class _Told:
    listener: Listener | None = None


def tell(listener: Listener | None) -> None:
    """From now on, in this process."""
    _Told.listener = listener


class LateBatch(torch.Tensor):
    """Made by `late_batch`. `__torch_dispatch__` is for code that comes past Python."""

    _pixels: torch.Tensor
    _table: torch.Tensor
    _floats: torch.Tensor | None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _is_about(func):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        args, kwargs = tree_map(_settled, (args, kwargs or {}))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own has no types
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = tree_map(_kept_floats, (args, kwargs or {}))
        return func(*args, **kwargs)

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As bytes, where that is to a device."""
        return self._sent("to", args, kwargs)

    def cuda(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The same."""
        return self._sent("cuda", args, kwargs)

    def pin_memory(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Of the bytes."""
        if self._floats is not None:
            return self._floats.pin_memory(*args, **kwargs)
        return late_batch(self._pixels.pin_memory(*args, **kwargs), self._table)

    def is_pinned(self, *args: Any, **kwargs: Any) -> bool:
        """Whether they are."""
        return self._pixels.is_pinned(*args, **kwargs)

    def _sent(self, method: str, args: Any, kwargs: Any) -> torch.Tensor:
        error = None
        if self._floats is None and (asked := _asked(method, args, kwargs)) is not None:
            try:
                sent = arrive(self._pixels, self._table, *asked)
            except Exception as failure:
                error = failure
            else:
                _note("sent")
                return sent
        plain = _settled(self)
        result: torch.Tensor = getattr(plain, method)(*args, **kwargs)
        if error is not None:  # and not the script's own, which would have come again
            _note("failed", error)
        return result

    __class__ = property(lambda self: torch.Tensor)


def late_batch(pixels: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Of uint8[N, H, W, 3], and the value of each byte in each channel, float32[3, 256]."""
    count, height, width, _ = pixels.shape
    batch: Any = torch.Tensor._make_wrapper_subclass(
        LateBatch, (count, 3, height, width), dtype=torch.float32, device=torch.device("cpu")
    )
    vars(batch).update(_pixels=pixels, _table=table, _floats=None)
    plain: torch.Tensor = batch
    return plain


def is_late_batch(value: Any) -> bool:
    """Whether it is bytes still."""
    return type(value) is LateBatch


def values_of(batch: Any) -> torch.Tensor:
    """A plain tensor of its own, in the processor's memory."""
    own = vars(batch)
    if own["_floats"] is not None:
        copied: torch.Tensor = own["_floats"].clone()
        return copied
    pixels = own["_pixels"]
    count, height, width, _ = pixels.shape
    out = torch.empty(
        (count, 3, height, width), dtype=torch.float32, device="cpu", pin_memory=pixels.is_pinned()
    )
    _native.convert(pixels.numpy(), out.numpy(), own["_table"].numpy(), torch.get_num_threads())
    return out


def arrive(
    pixels: torch.Tensor, table: torch.Tensor, device: torch.device, dtype: torch.dtype | None,
    non_blocking: bool, memory_format: torch.memory_format | None,
) -> torch.Tensor:  # fmt: skip
    """On the device: float32[N, 3, H, W] of uint8[N, H, W, 3], or as is asked for beyond that."""
    with torch.no_grad():
        there = pixels.to(device, non_blocking=non_blocking)
        values = table.to(device, non_blocking=True)
        count, height, width, _ = there.shape
        out = torch.empty((count, 3, height, width), dtype=torch.float32, device=there.device)
        # One by one: indices take four times the memory of bytes.
        for channel in range(3):
            indices = there[..., channel].int()
            out[:, channel] = embedding(indices, values[channel, :, None])[..., 0]
    if dtype is None and memory_format is None:
        return out
    return out.to(dtype=dtype, memory_format=memory_format or torch.preserve_format)


def _asked(method: str, args: Any, kwargs: Any) -> tuple[Any, ...] | None:
    """Device, dtype, whether it need not wait, and memory format; None where it stays here, or is
    asked for anything more.
    """
    if method == "cuda" and not args and kwargs.get("device") is None:
        kwargs = {**kwargs, "device": "cuda"}
    # It is one anyway.
    kwargs = {name: value for name, value in kwargs.items() if name != "copy"}
    try:
        asked: tuple[Any, ...] = torch._C._nn._parse_to(*args, **kwargs)
    except Exception:
        return None
    return None if asked[0] is None or asked[0].type in _HERE else asked


def _settled(value: Any) -> Any:
    """The object itself, a plain tensor from now on; or one with its values, if that cannot be."""
    if not is_late_batch(value):
        return value
    own = vars(value)
    if own["_floats"] is None:
        _note("used")
    plain = _kept_floats(value)
    try:
        torch._C._swap_tensor_impl(value, plain)
    except Exception:  # somebody holds what would be swapped
        return plain
    for name in _OWN:
        del own[name]
    _set_class(value, torch.Tensor)
    return value


def _kept_floats(value: Any) -> Any:
    """The same tensor whenever it is asked for: others may look at its memory."""
    if not is_late_batch(value):
        return value
    own = vars(value)
    if own["_floats"] is None:
        own["_floats"] = values_of(value)
    return own["_floats"]


def _is_about(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(func.__self__, "__name__", "") in _ATTRIBUTES
    return name in _METHODS


def _note(what: str, *args: Any) -> None:
    if _Told.listener is not None:
        getattr(_Told.listener, what)(*args)
