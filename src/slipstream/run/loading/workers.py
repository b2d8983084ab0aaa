"""torch's iterator of a loader with workers, all its own but for the queue that batches come by."""

import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data._utils.worker as torch_worker
from torch._C import _remove_worker_pids, _set_worker_pids
from torch.utils.data import DataLoader, MapDataPipe, default_collate
from torch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter

from slipstream.run.loading.depth import Depth, free_batches
from slipstream.run.loading.slot_queue import SlotCollating, SlotQueue

SPARE_SLOTS = 4  # for each worker, beyond what it makes ahead: for batches that the loop holds


class SlotIterator(_MultiProcessingDataLoaderIter):
    """Does all that torch's does. Indices, seeds, workers and errors are torch's business."""

    def __init__(
        self, loader: DataLoader[Any], slots: SlotQueue, depth: Depth,
        at_end: Callable[["SlotIterator"], None] | None = None,
    ) -> None:  # fmt: skip
        """`at_end` is given another iterator with the same workers, which wait, when all batches
        were given; without it they end.
        """
        self._depth = depth
        super().__init__(_Disguise(loader, slots, stays=at_end is not None))
        slots.forget_workers_ends()
        self._slots, self._at_end = slots, at_end
        kind = _MultiProcessingDataLoaderIter.__name__
        self._profile_name = f"enumerate(DataLoader)#{kind}.__next__"

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        depth = self._depth
        depth.begin(free_batches(self._index_sampler, self._dataset) if self._in_order else 0)
        self._prefetch_factor = depth.now
        super()._reset(loader, first_iter)

    def _try_put_index(self) -> None:
        """torch's; sooner than there for what lies deeper."""
        under_way = self._send_idx - self._rcvd_idx
        is_early = under_way >= self._depth.given * self._num_workers
        if is_early and not self._depth.may_ask(self._send_idx):
            return
        number = self._send_idx
        super()._try_put_index()
        if self._send_idx > number:
            self._depth.sent(number, self._task_info[number][0], time.monotonic())

    def _next_data(self) -> Any:
        asked = time.monotonic()
        try:
            data = super()._next_data()  # type: ignore[no-untyped-call]
        except StopIteration:
            if self._at_end is not None:
                self._at_end(self._successor())
            raise
        came = time.monotonic()
        if self._in_order and self._depth.came(self._rcvd_idx - 1, came - asked, came):
            self._go_deeper()
        return data

    def _go_deeper(self) -> None:
        more = self._depth.now - self._prefetch_factor
        self._prefetch_factor = self._depth.now
        self._slots.allow(self._depth.now + SPARE_SLOTS)
        for _ in range(more * self._num_workers):
            self._try_put_index()

    def _successor(self) -> "SlotIterator":
        successor = SlotIterator.__new__(SlotIterator)
        successor.__dict__.update(vars(self))
        self.__class__ = _Ended  # type: ignore[assignment]
        # torch raises where one of them dies; while they wait, that is nobody's loss.
        _remove_worker_pids(id(self))
        successor._worker_pids_set = False
        return successor

    def are_same(self) -> bool:
        """Whether all workers have the dataset as they were given it. They have nothing to do."""
        self._slots.forget_changes()
        self._tell(None)
        return not self._slots.has_changes()

    def begin_from(self, base_seed: int) -> None:
        """Workers draw what new ones would that have this seed."""
        self._base_seed = base_seed
        self._tell(base_seed)
        pids = tuple(worker.pid for worker in self._workers if worker.pid is not None)
        _set_worker_pids(id(self), pids)
        self._worker_pids_set = True

    def _tell(self, seed: int | None) -> None:
        for index_queue in self._index_queues:
            index_queue.put(torch_worker._ResumeIteration(seed))
        answers = 0
        while answers < self._num_workers:
            number, _ = self._get_data()  # type: ignore[no-untyped-call]
            answers += isinstance(number, torch_worker._ResumeIteration)


class _Ended(_MultiProcessingDataLoaderIter):
    """One whose workers are another's now."""

    def _next_data(self) -> Any:
        raise StopIteration

    def __del__(self) -> None:
        """Nothing is left to do."""


class _Disguise:
    """The loader as torch's iterator sees it while it is made."""

    def __init__(self, loader: DataLoader[Any], slots: SlotQueue, *, stays: bool) -> None:
        self._loader = loader
        self.persistent_workers = stays or loader.persistent_workers
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
