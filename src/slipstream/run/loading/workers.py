"""torch's iterator of a loader with workers, all its own but for the queue that batches come by."""

import multiprocessing
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader, MapDataPipe, default_collate
from torch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter

from slipstream.run.loading.slot_queue import SlotCollating, SlotQueue


class SlotIterator(_MultiProcessingDataLoaderIter):
    """Does all that torch's does. Indices, seeds, workers and errors are torch's business."""

    def __init__(self, loader: DataLoader[Any], slots: SlotQueue) -> None:
        super().__init__(_Disguise(loader, slots))
        slots.forget_workers_ends()
        kind = _MultiProcessingDataLoaderIter.__name__
        self._profile_name = f"enumerate(DataLoader)#{kind}.__next__"


class _Disguise:
    """The loader as torch's iterator sees it while it is made."""

    def __init__(self, loader: DataLoader[Any], slots: SlotQueue) -> None:
        self._loader = loader
        self.multiprocessing_context = _Context(loader.multiprocessing_context, slots)
        self.collate_fn: Any = loader.collate_fn
        if loader._auto_collation and self.collate_fn is default_collate:
            self.collate_fn = SlotCollating(slots)
        self.worker_init_fn: Any = loader.worker_init_fn
        if _has_cv2_threads():
            self.worker_init_fn = _OneCv2Thread(self.worker_init_fn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Context:
    """Of multiprocessing: the first queue that is made is ours, for results."""

    def __init__(self, context: Any, slots: SlotQueue) -> None:
        self._context = torch.multiprocessing if context is None else context
        self._slots: SlotQueue | None = slots

    def Queue(self) -> Any:
        """Ours first."""
        slots, self._slots = self._slots, None
        return self._context.Queue() if slots is None else slots

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _OneCv2Thread:
    """Each worker has a core at best; OpenCV would start threads for all of them. Its results are
    those of each row by itself.
    """

    def __init__(self, own: Any) -> None:
        self._own = own

    def __call__(self, worker: int) -> None:
        sys.modules["cv2"].setNumThreads(1)
        if self._own is not None:
            self._own(worker)


def _has_cv2_threads() -> bool:
    cv2: Any = sys.modules.get("cv2")
    return cv2 is not None and hasattr(cv2, "setNumThreads") and cv2.getNumThreads() > 1


def why_not_slots(loader: DataLoader[Any]) -> str:
    """Why torch's own queue stays, or an empty string."""
    if loader.num_workers == 0:
        return "it has no workers"
    if loader._dataset_kind != _DatasetKind.Map or isinstance(loader.dataset, MapDataPipe):
        return "its dataset makes its own order"
    context: Any = loader.multiprocessing_context or multiprocessing
    if context.get_start_method() != "fork":
        return "its workers are not forked"
    return ""
