"""Batches of what lies in memory, gathered in one step instead of sample by sample."""

import contextlib
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import (
    collate_numpy_array_fn,
    collate_numpy_scalar_fn,
    collate_tensor_fn,
    default_collate_fn_map,
)
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from slipstream.run.loading.array_pictures import pictures_in_an_array
from slipstream.run.loading.conversions import ARRAY, TENSOR, Refused, are_known, converted
from slipstream.run.loading.digest import digest
from slipstream.run.loading.getters import Parts, Row, rows_of
from slipstream.run.loading.slot_queue import SlotCollating

_DTYPES = frozenset({
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.bool,
})  # fmt: skip
_NUMPY = frozenset(
    np.dtype(name)
    for name in ("f2", "f4", "f8", "u1", "i1", "i2", "i4", "i8", "?")
)  # fmt: skip
_MOST_REFUSALS = 3
_LEAST_ROWS = 8  # in a batch
_SMALL_BYTES = 64 << 10  # of a sample: larger ones take their time to copy, not to find


class RowsFetcher(_MapDatasetFetcher):
    """torch's fetcher, with a shorter way to the same batches."""

    def __init__(self, *args: Any, say: Callable[[], None] = lambda: None) -> None:
        """`say` is called when the short way was seen to lead to the same."""
        super().__init__(*args)
        self._say = say
        self._way = way_to_rows(self.dataset)
        self._proved_for = _proofs.of(self.dataset)  # kinds of arrays
        self._refusals = 0

    def fetch(self, possibly_batched_index: Any) -> Any:
        """As torch's; what the short way cannot do, or refuses, goes the long one."""
        index = possibly_batched_index
        if self._way is None or type(index) is not list or len(index) < _LEAST_ROWS:
            return self._fetch_usually(index)
        try:
            kinds = self._way.kinds()
            is_proved = kinds == self._proved_for
            before = None if is_proved else torch.get_rng_state()
            batch = self._way.gather(index)
        except Exception:
            self._refusals += 1
            if self._refusals >= _MOST_REFUSALS:
                self._way = None
            return self._fetch_usually(index)
        if before is None:
            return batch
        # Nothing is changed by looking rows up but torch's generator: once more does no harm.
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        usual = self._fetch_usually(index)
        if digest(batch) == digest(usual) and torch.equal(after, torch.get_rng_state()):
            self._proved_for = kinds
            _proofs.keep(self.dataset, kinds)
            self._say()
        else:
            self._way = None
        return usual

    def _fetch_usually(self, index: Any) -> Any:
        return super().fetch(index)  # type: ignore[no-untyped-call]


class _Proofs:
    """What was proved for datasets of this process: a fetcher lives for one epoch."""

    def __init__(self) -> None:
        self._kinds: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def of(self, dataset: Any) -> Any:
        try:
            found, kinds = self._kinds[dataset]
        except (KeyError, TypeError):
            return None
        return kinds if found() is dataset else None  # and not one that is equal to it

    def keep(self, dataset: Any, kinds: Any) -> None:
        with contextlib.suppress(TypeError):
            self._kinds[dataset] = weakref.ref(dataset), kinds


_proofs = _Proofs()


class _Way(Protocol):
    def kinds(self) -> list[Any]: ...

    def gather(self, index: list[int]) -> Any: ...


class _Rows:
    """Looks up what `dataset` holds anew for every batch: it may have changed."""

    def __init__(self, dataset: Any, form: Row | Parts | None) -> None:
        self._dataset, self._form = dataset, form
        self._getter = getattr(type(dataset), "__getitem__", None)

    def gather(self, index: list[int]) -> Any:
        """The batch of these. Raises where that is not certain."""
        rows = torch.tensor(index)
        if self._form is None:
            return [_take_tensor(tensor, rows) for tensor in self._dataset.tensors]
        if type(self._dataset).__getitem__ is not self._getter:
            raise Refused
        return self._collate(self._form, rows)

    def kinds(self) -> list[Any]:
        """Of what is looked up: with others, a conversion may be another."""
        if self._form is None:
            return [tensor.dtype for tensor in self._dataset.tensors]
        sources = (vars(self._dataset)[name] for name in _names(self._form))
        return [self._getter, *((type(one), one.dtype, one.ndim) for one in sources)]

    def _collate(self, form: Row | Parts, rows: torch.Tensor) -> Any:
        if isinstance(form, Row):
            return _take(vars(self._dataset)[form.name], rows, form)
        items = [self._collate(item, rows) for item in form.items]
        return dict(zip(form.keys, items, strict=True)) if form.kind is dict else items


class _InSubsets:
    """Of subsets of subsets, the outermost first."""

    def __init__(self, way: _Way, subsets: list[Any]) -> None:
        self.kinds = way.kinds
        self._way, self._subsets = way, subsets

    def gather(self, index: Any) -> Any:
        """As the way that leads there; raises where numbers are something else."""
        for subset in self._subsets:
            index = [subset.indices[one] for one in index]
        kinds = set(map(type, index))
        if not kinds <= {int, np.int64}:
            raise Refused
        return self._way.gather(index if kinds == {int} else [int(one) for one in index])


def way_to_rows(dataset: Any) -> _Way | None:
    """The short way, if the dataset is known to have one."""
    if not _collates_as_usual():
        return None
    subsets = []
    while type(dataset) is Subset:
        subsets.append(dataset)
        dataset = dataset.dataset
    way = _way_without_subsets(dataset)
    return None if way is None else _InSubsets(way, subsets)


def _way_without_subsets(dataset: Any) -> _Way | None:
    kind: Any = type(dataset)
    if kind is TensorDataset:
        return _Rows(dataset, None)
    if hasattr(dataset, "__getitems__") or kind.__getattribute__ is not object.__getattribute__:
        return None
    pictures = pictures_in_an_array(dataset)
    if pictures is not None:
        return pictures
    getter: Any = getattr(kind, "__getitem__", None)
    form = rows_of(getter)
    if form is None or any(hasattr(kind, name) for name in _names(form)):
        return None
    if not are_known(form, getter.__globals__):
        return None
    return _Rows(dataset, form)


def _names(form: Row | Parts) -> list[str]:
    if isinstance(form, Row):
        return [form.name]
    return [name for item in form.items for name in _names(item)]


def _take(source: Any, rows: torch.Tensor, form: Row) -> torch.Tensor:
    if type(source) is torch.Tensor:
        found, kind = _take_tensor(source, rows), TENSOR
    else:
        if type(source) is not np.ndarray or source.dtype not in _NUMPY:
            raise Refused
        if source.ndim == 0 or not (source.flags.c_contiguous and source.flags.writeable):
            raise Refused
        found, kind = _take_tensor(torch.from_numpy(source), rows), ARRAY
    if form.dims > source.ndim:
        raise Refused
    found, kind = converted(found, form.turns, kind, source.ndim)
    if kind == ARRAY and source.ndim == 1:
        if form.turns:
            raise Refused
        # Numbers by themselves become what torch reads them as.
        found = found.to(torch.as_tensor([source[0]]).dtype)
    return found


def _take_tensor(source: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    is_plain = source.layout is torch.strided and source.device.type == "cpu"
    if not is_plain or source.requires_grad or source.dtype not in _DTYPES:
        raise Refused
    if source.ndim == 0 or not source.is_contiguous() or source.is_conj() or source.is_neg():
        raise Refused
    if source.nbytes > _SMALL_BYTES * len(source):
        raise Refused
    return source.index_select(0, rows)


def _collates_as_usual() -> bool:
    usual: dict[Any, Any] = {
        torch.Tensor: collate_tensor_fn,
        np.ndarray: collate_numpy_array_fn,
        (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    }
    return all(default_collate_fn_map.get(kind) is way for kind, way in usual.items())


def suits(auto_collation: bool, collate_fn: Any) -> bool:
    """Whether batches are made as torch makes them by itself."""
    is_usual = collate_fn is default_collate or isinstance(collate_fn, SlotCollating)
    return auto_collation and is_usual
