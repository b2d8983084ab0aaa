"""A number that is still on its way from the device.

Sums and products of it stay on the way, and are computed later from the same numbers in the same
order. Whatever else is done with it waits for the number, and gives a plain one.
"""

import math
import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from slipstream.run.unawaited import marked, unawaited

_MOST = 64  # on their way at once; those of so many steps ago have long arrived
_waiting: "deque[Deferred]" = deque()

Number = Any  # int, float, bool or complex: what .item() gives


class Deferred:
    """Behaves as the number that it will be, but is no instance of float."""

    __slots__ = ("_parts", "_read", "_value")
    __hash__: Any

    def __init__(
        self, read: Callable[[], Number] | None = None, parts: tuple[Any, Any, Any] | None = None
    ) -> None:
        self._read, self._parts = read, parts
        self._value: Number = None
        _waiting.append(self)
        # The oldest first: what a later one is made of is known then, however long a sum is.
        while len(_waiting) > _MOST:
            _waiting.popleft().now()

    def now(self) -> Number:
        """The number; waits for it."""
        if self._read is not None:
            self._value, self._read = self._read(), None
        elif self._parts is not None:
            how, left, right = self._parts
            self._value, self._parts = how(plain(left), plain(right)), None
        return self._value

    def __add__(self, other: Any) -> Any:
        return _later(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _later(operator.add, other, self)

    def __mul__(self, other: Any) -> Any:
        return _later(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _later(operator.mul, other, self)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy computes with the plain number: in place, too."""
        return getattr(function, method)(*map(plain, inputs), **kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        return np.asarray(self.now(), dtype)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """A tensor computes with it: in place, too."""
        args, kwargs = tree_map(plain, (args, kwargs or {}))
        return function(*args, **kwargs)

    def __reduce__(self) -> Any:
        return plain, (self.now(),)

    def __copy__(self) -> Any:
        return self.now()

    def __deepcopy__(self, known: Any) -> Any:
        return self.now()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now(), name)

    def __format__(self, how: str) -> str:
        return format(self.now(), how)


def deferred(tensor: torch.Tensor) -> Deferred:
    """The number in a tensor of a device, copied beside the work that follows."""
    if not tensor.is_cuda:
        kept = tensor.detach().clone()
        return Deferred(kept.item)
    kept = torch.empty((), dtype=tensor.dtype, pin_memory=True)
    # These as they are without fixes.
    item, copy = torch._C.TensorBase.item, torch._C.TensorBase.copy_
    copy(kept, tensor.detach().reshape(()), non_blocking=True)
    # On the stream that copies: the tensor's device need not be the current one.
    arrived = marked(torch.cuda.current_stream(tensor.device))
    unawaited.wait()

    def read() -> Number:
        arrived.synchronize()
        return item(kept)

    return Deferred(read)


def plain(thing: Any) -> Any:
    """Of a number that is on its way the number, else the thing itself."""
    return thing.now() if type(thing) is Deferred else thing


def _later(how: Any, left: Any, right: Any) -> Any:
    numbers = (bool, int, float, Deferred)
    if type(left) in numbers and type(right) in numbers:
        return Deferred(parts=(how, left, right))
    return how(plain(left), plain(right))


def _one(how: Any) -> Any:
    def method(self: Deferred, *args: Any) -> Any:
        return how(self.now(), *args)

    return method


def _two(how: Any) -> Any:
    def method(self: Deferred, other: Any) -> Any:
        return how(self.now(), plain(other))

    return method


def _turned(how: Any) -> Any:
    def method(self: Deferred, other: Any) -> Any:
        return how(plain(other), self.now())

    return method


for _name, _how in {
    "float": float, "int": int, "complex": complex, "bool": bool, "str": str, "repr": repr,
    "hash": hash, "round": round, "neg": operator.neg, "pos": operator.pos, "abs": abs,
    "index": operator.index, "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil,
}.items():  # fmt: skip
    setattr(Deferred, f"__{_name}__", _one(_how))
for _name in ("sub", "truediv", "floordiv", "mod", "pow"):
    setattr(Deferred, f"__{_name}__", _two(getattr(operator, _name)))
    setattr(Deferred, f"__r{_name}__", _turned(getattr(operator, _name)))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Deferred, f"__{_name}__", _two(getattr(operator, _name)))
