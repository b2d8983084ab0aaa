"""The matrix products of one forward pass: their shapes, and attention that is made of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from slipstream.doctor.record.places import users_place

_aten = torch.ops.aten
_PRODUCTS = {_aten.mm: 0, _aten.addmm: 1, _aten.bmm: 0, _aten.baddbmm: 1}  # the first factor
_SOFTMAX = {_aten._softmax, _aten._safe_softmax}
_MASKS = {_aten.masked_fill, _aten.masked_fill_, _aten.where, _aten.add, _aten.add_}
# Between the scores and their softmax, or the weights and their product.
_BETWEEN = _MASKS | {
    _aten.div, _aten.div_, _aten.mul, _aten.mul_, _aten.sub, _aten.clone, _aten._to_copy,
    _aten.native_dropout, _aten.nan_to_num,
}  # fmt: skip
# Under inference mode these come whole, and otherwise as what they are made of.
_WHOLE = {_aten.matmul, _aten.linear, _aten.einsum, _aten.softmax}
_MOST = 64
_FUSED = "scaled_dot_product_attention"
_LAYER = "multi_head_attention_forward"


@dataclass
class Product:
    """Of [batch, rows, inner] and [batch, inner, columns]; `count` of them in a pass."""

    shape: tuple[int, int, int, int]
    dtype: torch.dtype
    device: str
    where: str | None
    with_grad: bool
    count: int = 0


@dataclass
class Attention:
    """softmax(scores) @ values, by hand. `shape`: [batch times heads, queries, keys, width].
    `is_gathered`: heads lie apart, and are copied together for the products.
    """

    shape: tuple[int, int, int, int]
    values_width: int
    dtype: torch.dtype
    device: str
    where: str | None
    is_masked: bool
    is_gathered: bool
    with_grad: bool
    count: int = 0


@dataclass
class _Mark:
    """Of what a tensor holds: scores, the weights made of them, or a copy of something else."""

    kind: str
    shape: tuple[int, int, int, int]
    is_masked: bool = False


class Products:
    """What was seen."""

    def __init__(self) -> None:
        self.products: dict[Any, Product] = {}
        self.attentions: dict[Any, Attention] = {}


@contextmanager
def watching_products() -> Iterator[Products]:
    """Notes the products of this thread meanwhile; a few microseconds for every operation."""
    seen = Products()
    fused = _Fused()
    with fused, _Watch(seen, fused):
        yield seen


class _Fused(TorchFunctionMode):
    """Knows whether torch's own attention is under way, which may be made of products, too."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_fused = _is_fused(getattr(func, "__name__", ""), kwargs or {})
        self.depth += is_fused
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.depth -= is_fused


def _is_fused(name: str, kwargs: dict[str, Any]) -> bool:
    """torch's own, or what calls nothing else unless its weights are asked for."""
    return name == _FUSED or (name == _LAYER and not kwargs.get("need_weights", True))


class _Watch(TorchDispatchMode):
    def __init__(self, seen: Products, fused: _Fused) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen
        self._fused = fused
        self._marks: dict[int, tuple[StorageWeakRef, _Mark]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in _WHOLE and torch.is_inference_mode_enabled():
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = func(*args, **(kwargs or {}))
        try:
            self._note(func.overloadpacket, args, result)
        except Exception:  # the user's training goes on, whatever is odd about its tensors
            self._marks.clear()
        return result

    def _note(self, what: Any, args: Any, result: Any) -> None:
        if what in _PRODUCTS and not self._fused.depth:
            first = _PRODUCTS[what]
            self._note_product(args[first], args[first + 1], result)
        elif what in _SOFTMAX and not self._fused.depth:
            mark = self._mark_of(args[0])
            is_last = args[1] in (-1, args[0].ndim - 1)
            if mark is not None and mark.kind == "scores" and is_last:
                self._put(result, _Mark("weights", mark.shape, mark.is_masked))
        elif what in _BETWEEN:
            made = result[0] if isinstance(result, tuple) else result
            for given in args[:3]:
                mark = self._mark_of(given) if isinstance(given, torch.Tensor) else None
                # Of a sum of larger things these scores are one part of many.
                if mark is not None and made.numel() == given.numel():
                    masked = mark.is_masked or (what in _MASKS and mark.kind == "scores")
                    self._put(made, _Mark(mark.kind, mark.shape, masked))
                    return
            if what is _aten.clone:
                self._put(made, _Mark("copy", (0, 0, 0, 0)))

    def _note_product(self, a: torch.Tensor, b: torch.Tensor, result: torch.Tensor) -> None:
        batch = a.shape[0] if a.ndim == 3 else 1
        shape = (batch, a.shape[-2], a.shape[-1], b.shape[-1])
        mark = self._mark_of(a)
        where = users_place()
        about = (a.dtype, a.device.type, where)
        grad = torch.is_grad_enabled()
        if mark is not None and mark.kind == "weights" and mark.shape[2] == a.shape[-1]:
            known = (*mark.shape, b.shape[-1], *about)
            if known in self._seen.attentions or len(self._seen.attentions) < _MOST:
                values = self._mark_of(b)
                is_gathered = values is not None and values.kind == "copy"
                made = Attention(
                    mark.shape, b.shape[-1], *about, mark.is_masked, is_gathered, grad
                )  # fmt: skip
                self._seen.attentions.setdefault(known, made).count += 1
            return
        key = (*shape, *about)
        if key in self._seen.products or len(self._seen.products) < _MOST:
            self._seen.products.setdefault(key, Product(shape, *about, grad)).count += 1
        if a.ndim == 3:
            scores = (batch, a.shape[1], b.shape[2], a.shape[2])
            self._put(result, _Mark("scores", scores))

    def _mark_of(self, tensor: torch.Tensor) -> _Mark | None:
        found = self._marks.get(tensor.untyped_storage()._cdata)
        return None if found is None else found[1]

    def _put(self, tensor: torch.Tensor, mark: _Mark) -> None:
        storage = tensor.untyped_storage()
        # A weak reference keeps the address from being used again, and not the memory.
        self._marks[storage._cdata] = (StorageWeakRef(storage), mark)  # type: ignore[no-untyped-call]
