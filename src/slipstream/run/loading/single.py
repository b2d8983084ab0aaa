"""torch's iterator of a loader without workers, with batches made ahead."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, MapDataPipe
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

from slipstream.run.fix import Say
from slipstream.run.loading.ahead import Ahead
from slipstream.run.loading.child import Job
from slipstream.run.loading.indices import Indices
from slipstream.run.loading.knowledge import Knowledge
from slipstream.run.loading.rows import suits, way_to_rows

# A collate function that leads to its loader keeps it here, which is more than `gc` can tell.
_MOST_KNOWN = 4
_known: weakref.WeakKeyDictionary[DataLoader[Any], Knowledge] = weakref.WeakKeyDictionary()


class AheadIterator(_SingleProcessDataLoaderIter):
    """Does all that torch's does, `_next_data` aside."""

    def __init__(
        self, loader: DataLoader[Any], say: Say,
        fail: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        super().__init__(loader)
        kind = _SingleProcessDataLoaderIter.__name__
        self._profile_name = f"enumerate(DataLoader)#{kind}.__next__"
        self._sampler_iter: Any = Indices(self._index_sampler, self._sampler_iter)
        self._ahead = Ahead(
            self._dataset_fetcher.fetch,
            self._sampler_iter,
            Job(self._dataset, self._collate_fn, self._auto_collation, torch.get_num_threads()),
            _knowledge_of(loader),
            length=_length(self._index_sampler),
            say=say,
            fail=fail,
        )

    def _next_data(self) -> Any:
        data = next(self._ahead)
        if self._pin_memory:
            data = pin_memory(data, self._pin_memory_device)  # type: ignore[no-untyped-call]
        return data


def can_work_ahead(loader: DataLoader[Any]) -> bool:
    """Whether torch would read a map-style dataset in the loop's process."""
    return (
        loader.num_workers == 0
        and loader._dataset_kind == _DatasetKind.Map
        and not isinstance(loader.dataset, MapDataPipe)
    )


def lies_in_memory(loader: DataLoader[Any]) -> bool:
    """Whether a batch is found sooner than handed over."""
    is_usual = suits(loader._auto_collation, loader.collate_fn)
    return is_usual and way_to_rows(loader.dataset) is not None


def is_off(loader: DataLoader[Any]) -> bool:
    """Whether it was found out that nothing is to be gained."""
    known = _known.get(loader)
    return known is not None and bool(known.off)


def _knowledge_of(loader: DataLoader[Any]) -> Knowledge:
    dataset, collate_fn = loader.dataset, loader.collate_fn
    known = _known.get(loader)
    if known is None or known.roots[0] is not dataset or known.roots[1] is not collate_fn:
        known = Knowledge([dataset, collate_fn])
    _known.pop(loader, None)
    for oldest in [*_known][: max(0, 1 - _MOST_KNOWN + len(_known))]:
        del _known[oldest]
    _known[loader] = known
    return known


def _length(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except (TypeError, NotImplementedError):
        return None
