"""Opens what makes the batches of one iteration, and puts the stages behind one another."""

import functools
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from slipstream.augment.lowering import Lowered
from slipstream.loader.auto import DEFAULT_PREFETCH, MOST_PREFETCH, AutoCount
from slipstream.loader.balance import Balance
from slipstream.loader.collating import collate_here
from slipstream.loader.cuda_lane import CudaLane, Sent
from slipstream.loader.decoding import balance_of
from slipstream.loader.engine import Engine
from slipstream.loader.fetching import fetch
from slipstream.loader.made import Made
from slipstream.loader.memory import Memory, PinnedMemory
from slipstream.loader.plan import Task
from slipstream.loader.pool import Pool
from slipstream.loader.prefetch import DevicePrefetcher, Lane
from slipstream.loader.route import ENGINE, ROWS, WORKERS
from slipstream.loader.rows import TensorRows
from slipstream.loader.samples import batch_under_way
from slipstream.loader.share import share_lists
from slipstream.loader.stats import Stats, bytes_of, samples_in
from slipstream.loader.structure import map_tensors
from slipstream.loader.threaded import ThreadedBatches, one_by_one, without_catcher
from slipstream.loader.tuning import Tuner
from slipstream.loader.worker import Job
from slipstream.loader.worker_batches import WorkerBatches

# Smaller batches are made sooner than handed from one thread to another.
_INLINE_BYTES = 1 << 18
_ENGINE_THREADS = 2
_MOST_GPU_THREADS = 4
_WAITING_THREADS = 2  # for the GPU, meanwhile
_SPARE_SLOTS = 2
# Pictures, whose share of Python's time and the launches' is small then; and the part of the GPU's
# memory that may hold them.
_TOGETHER = 512
_MEMORY_PART = 16
_MOST_SLOT_BYTES = 1 << 30


class Source:
    """Iterator over `(task, made, batch)`, with the batch where the loop wants it."""

    def __init__(self, maker: Any, device: Any, lane: Lane | None) -> None:
        self._maker = maker
        self._prefetcher: DevicePrefetcher[Any] | None = None
        self._device = device
        self._copied = (0, 0.0)
        self._failed: Task | None = None
        if lane is not None:
            self._prefetcher = DevicePrefetcher(
                _Tokens(maker), lane, interrupt=getattr(maker, "interrupt", None)
            )

    @property
    def waiting(self) -> int:
        """Batches that are ready and not yet asked for."""
        return int(getattr(self._maker, "waiting", 0))

    def __next__(self) -> tuple[Task, Made, Any]:
        if self._prefetcher is not None:
            token, batch = next(self._prefetcher)
            if token.error is not None:
                self._failed = token.task
                raise token.error
            return token.task, token.made, batch
        task, made = next(self._maker)
        batch = made.batch
        if self._device is not None:
            batch = map_tensors(batch, self._move, self._move)
        return task, made, batch

    def _move(self, thing: Any) -> Any:
        return thing.to(self._device)

    def take_failed(self) -> Task | None:
        """The task whose batch has just raised an error in place of being delivered."""
        failed, self._failed = self._failed, None
        if failed is None and self._prefetcher is None:
            failed = getattr(self._maker, "failed", None)
            if failed is not None:
                self._maker.failed = None
        return failed

    def observe(self, wait_s: float) -> None:
        """The loop waited so long for its batch."""
        observe = getattr(self._maker, "observe", None)
        if observe is not None:
            observe(wait_s)

    def count_copies(self, stats: Stats) -> None:
        """Add what was copied to the device since the last call."""
        if self._prefetcher is not None:
            now = self._prefetcher.stats.copied_bytes, self._prefetcher.stats.pin_s
            stats.copy_bytes += now[0] - self._copied[0]
            stats.pin_s += now[1] - self._copied[1]
            self._copied = now

    def close(self) -> None:
        """End all stages."""
        if self._prefetcher is not None:
            self._prefetcher.close()
        close = getattr(self._maker, "close", None)
        if close is not None:
            close()

    @property
    def processes(self) -> list[Any]:
        """Worker processes; more may join."""
        found: list[Any] = getattr(self._maker, "processes", [])
        return found


class _Token:
    """Rides with a batch through the prefetcher, which looks into what it knows. With an `error` it
    stands for a batch that could not be made: those behind it can.
    """

    __slots__ = ("error", "made", "task")

    def __init__(self, task: Task, made: Made | None, error: Exception | None = None) -> None:
        self.task = task
        self.made = made
        self.error = error


class _Tokens:
    """What a maker makes, as the prefetcher takes it."""

    def __init__(self, maker: Any) -> None:
        self._maker = maker

    def __iter__(self) -> "_Tokens":
        return self

    def __next__(self) -> tuple[_Token, Any]:
        try:
            task, made = next(self._maker)
        except StopIteration:
            raise
        except Exception as error:
            failed = getattr(self._maker, "failed", None)
            if failed is None:
                raise
            self._maker.failed = None
            return _Token(failed, None, without_catcher(error)), None
        batch, made.batch = made.batch, made.batch is not None or None
        return _Token(task, made), batch

    def close(self) -> None:
        """Close the maker."""
        close = getattr(self._maker, "close", None)
        if close is not None:
            close()


class _PinLane:
    """Batches into page-locked memory, ahead, for loops that copy by themselves."""

    def __init__(self, device: str) -> None:
        self._device = device

    def active(self) -> AbstractContextManager[object]:
        return nullcontext()

    def send(self, batch: Any) -> tuple[Sent, list[object]]:
        return Sent(batch=pin_memory(batch, self._device), ticket=None), []  # type: ignore[no-untyped-call]

    def finished(self, ticket: Any) -> bool:
        return True

    def receive(self, sent: Sent) -> Any:
        return sent.batch

    def mark(self) -> Any:
        return None


def _device_of(loader: Any) -> torch.device | None:
    """Where batches are to go; of plain "cuda" the caller's current one."""
    if loader.device is None:
        return None
    device = torch.device(loader.device)
    if device == torch.device("cuda") and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def open_source(
    loader: Any, base_seed: int, torch_iterator: Any, sampled: Iterator[Any] | None
) -> Source:
    """Start making the batches of the iteration that the loader's position has begun."""
    position = loader._position
    epoch = position.running_epoch
    device = _device_of(loader)
    to_cuda = device is not None and device.type == "cuda"
    pins = loader.pin_memory and torch.accelerator.is_available() and not to_cuda
    choice = loader.choice
    route = choice.route
    balance = balance_of(loader, device if to_cuda else None)
    if to_cuda and not torch.cuda.is_available():
        CudaLane(device or "cuda")  # says what is wrong
    tasks = loader._tasks(epoch, position.start, sampled)
    maker: Any
    if balance is not None and device is not None:
        maker = _open_gpu_engine(loader, tasks, epoch, device, balance)
    elif route.kind in (ENGINE, ROWS):
        memory: Memory = PinnedMemory() if to_cuda or pins else loader._memory
        maker = _open_engine(loader, tasks, epoch, memory, device if to_cuda else None)
    elif route.kind == WORKERS:
        maker = _open_workers(loader, tasks, epoch, base_seed, pin=to_cuda)
    elif torch_iterator is None:
        maker = _LocalBatches(loader, tasks, epoch)
    else:
        maker = _TorchBatches(loader, torch_iterator)
        pins = False
    # Its stream is given back by its thread, so it comes when nothing can fail any more.
    lane: Lane | None = CudaLane(device) if to_cuda and device is not None else None
    if pins and route.kind not in (ENGINE, ROWS):
        accelerator = torch.accelerator.current_accelerator()
        lane = _PinLane(accelerator.type if accelerator is not None else "cuda")
    return Source(maker, None if lane is not None else device, lane)


def _open_engine(
    loader: Any, tasks: Iterator[Task], epoch: int, memory: Memory, device: torch.device | None
) -> Any:
    choice = loader.choice
    reader = choice.route.reader
    if choice.route.kind == ROWS:
        rows = TensorRows(loader.dataset, memory)
        makes: Any = rows.make
        small = rows.row_bytes * (loader.batch_size or 1) < _INLINE_BYTES
    else:
        finish = "here" if device is None else "on_device"
        engine = Engine(
            reader, choice.route.lowered, threads=choice.workers, memory=memory, finish=finish,
            **_engine_arguments(loader),
        )  # fmt: skip
        makes = functools.partial(engine.make, epoch=epoch)
        small = not reader.pictures and reader.row_bytes * (loader.batch_size or 1) < _INLINE_BYTES
    if small:
        return _InlineBatches(makes, tasks)
    depth = max(_ENGINE_THREADS, choice.prefetch)
    return ThreadedBatches(one_by_one(makes), tasks, threads=_ENGINE_THREADS, depth=depth)


def _engine_arguments(loader: Any) -> dict[str, Any]:
    return {
        "seed": loader.seed,
        "on_error": loader.on_error,
        "by_sample": loader._draws_by_sample(),
    }


def _open_gpu_engine(
    loader: Any, tasks: Iterator[Task], epoch: int, device: torch.device, balance: Balance
) -> ThreadedBatches:
    # Imported here: without a GPU it is not needed.
    from slipstream.loader.gpu_engine import GpuEngine

    choice = loader.choice
    # Each thread prepares a batch by itself: waking helpers for it would cost more than they save.
    at_once = min(choice.workers, _MOST_GPU_THREADS)
    threads = at_once + _WAITING_THREADS
    memory = torch.cuda.get_device_properties(device).total_memory // _MEMORY_PART
    engine = GpuEngine(
        choice.route.reader, choice.route.lowered, device=device, balance=balance,
        at_once=at_once, threads=max(1, choice.workers // at_once),
        slot_bytes=min(_MOST_SLOT_BYTES, memory // threads),
        **_engine_arguments(loader),
    )  # fmt: skip
    together = _pictures_together(choice.route.lowered, memory // threads)
    return ThreadedBatches(
        functools.partial(engine.make_group, epoch=epoch), tasks, threads=threads,
        depth=max(threads, choice.prefetch), observe=balance.observe,
        # Where the processor decodes there are no launches to save.
        group=lambda: together if balance.share else 1,
    )  # fmt: skip


def _pictures_together(lowered: Lowered, memory: int) -> int:
    """How many pictures of small batches the GPU engine decodes at once."""
    size = lowered.geometry.size
    if size is None or lowered.followers:
        return 1  # sizes, and the types of masks, are those of a batch
    # The result in the widest type, and a copy of it.
    each = 2 * 3 * 4 * size[0] * size[1]
    return min(_TOGETHER, memory // each)


class _InlineBatches:
    """Batches made when they are asked for."""

    def __init__(self, make: Any, tasks: Iterator[Task]) -> None:
        self._make = make
        self._tasks = tasks
        self.failed: Task | None = None

    def __iter__(self) -> "_InlineBatches":
        return self

    def __next__(self) -> tuple[Task, Made]:
        task = next(self._tasks)
        try:
            return task, self._make(task)
        except Exception:
            self.failed = task
            raise


class _LocalBatches:
    """A Dataset read in this process."""

    def __init__(self, loader: Any, tasks: Iterator[Task], epoch: int) -> None:
        self._dataset = loader.dataset
        self._on_error = loader.on_error
        self._by_sample = loader._draws_by_sample()
        is_default = loader.collate_fn is torch.utils.data.default_collate
        self._collate = collate_here if is_default else loader.collate_fn
        self._tasks = tasks
        self._epoch = epoch
        self.failed: Task | None = None

    def __iter__(self) -> "_LocalBatches":
        return self

    def __next__(self) -> tuple[Task, Made]:
        task = next(self._tasks)
        began = time.perf_counter()
        self.failed = task
        samples, bad = fetch(
            self._dataset, task.indices, epoch=self._epoch,
            key=None if self._by_sample else task.key, on_error=self._on_error,
        )  # fmt: skip
        fetched = time.perf_counter()
        if not samples and bad:
            self.failed = None
            return task, Made(None, 0, fetch_s=fetched - began, bad=bad)
        batch = self._collate(samples)
        self.failed = None
        done = time.perf_counter()
        nbytes = bytes_of(batch)
        return task, Made(batch, len(samples), nbytes, fetched - began, done - fetched, 0.0, bad)


class _TorchBatches:
    """torch's own iterator over the same tasks."""

    def __init__(self, loader: Any, iterator: Any) -> None:
        position = loader._position
        self._dataset = loader.dataset
        self._epoch = position.running_epoch
        self._iterator = iterator
        self._owned = loader._plan() if loader._owns_order else None
        self._at = position.start
        self._size = loader.batch_size or 1
        self._is_local = loader.num_workers == 0
        self.failed: Task | None = None
        self._by_sample = loader._draws_by_sample()
        if isinstance(loader.dataset, torch.utils.data.IterableDataset):
            # Its place cannot be asked for: what the loop has had is read again and thrown away.
            for _ in range(position.start):
                next(self._iterator, None)

    def _after(self, position: int) -> int:
        return position + 1 if self._owned is None else self._owned.advance(position)

    def __iter__(self) -> "_TorchBatches":
        return self

    def __next__(self) -> tuple[Task, Made]:
        began = time.perf_counter()
        try:
            # For every batch: another iteration may be under way, in another epoch.
            with batch_under_way(self._dataset, self._epoch, None if self._by_sample else self._at):
                batch = next(self._iterator)
        except StopIteration:
            raise
        except Exception:
            before, self._at = self._at, self._after(self._at)
            self.failed = Task(0, [], self._at, before)
            raise
        fetch_s = time.perf_counter() - began if self._is_local else 0.0
        before = self._at
        self._at = self._after(before)
        if self._owned is None:
            samples = samples_in(batch, self._size)
        else:
            samples = len(self._owned.share(before, self._at))
        return Task(0, [], self._at, before), Made(batch, samples, bytes_of(batch), fetch_s)


def _dataset_for_workers(loader: Any) -> Any:
    own = loader.choice.route.dataset
    return loader.dataset if own is None else own


def _open_workers(
    loader: Any, tasks: Iterator[Task], epoch: int, base_seed: int, *, pin: bool
) -> Any:
    choice = loader.choice
    prefetch = choice.prefetch or DEFAULT_PREFETCH
    pool = loader._pool
    keeps = loader.persistent_workers
    if pool is not None and pool.is_open and pool.is_used:
        # A loop inside a loop, maybe in another thread: it has workers of its own.
        pool, keeps = None, False
    if pool is None or not pool.is_open:
        job = Job(
            dataset=share_lists(_dataset_for_workers(loader), choice.workers),
            collate_fn=loader.collate_fn,
            auto_collation=loader._auto_collation,
            init_fn=loader.worker_init_fn,
            workers=choice.workers,
            base_seed=base_seed,
            batch_seed=loader._seed_of_batches(),
            on_error=loader.on_error,
            by_sample=loader._draws_by_sample(),
            slots=_SPARE_SLOTS
            + (MOST_PREFETCH if isinstance(loader.prefetch_factor, AutoCount) else prefetch),
        )
        loader._shelf.trim(2 * choice.workers * job.slots)
        pool = Pool(job, loader.multiprocessing_context, loader._shelf, pin=pin)
        if keeps:
            loader._pool = pool
    tuner = Tuner.of(loader)
    return WorkerBatches(
        pool, tasks, epoch, choice=choice, in_order=loader.in_order, timeout_s=loader.timeout,
        keep_pool=keeps, tuner=tuner,
    )  # fmt: skip
