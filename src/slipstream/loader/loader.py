"""`Loader`: torch's DataLoader, with faster ways to the same batches."""

import base64
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    MapDataPipe,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    default_collate,
)

from slipstream.cpu import usable_cores
from slipstream.errors import UsageError
from slipstream.loader.auto import AutoCount, auto_count
from slipstream.loader.bad_samples import POLICIES, BadSamples
from slipstream.loader.choice import Choice
from slipstream.loader.decoding import check_device, decode_line
from slipstream.loader.iterator import LoaderIterator
from slipstream.loader.lightning import note_arguments, note_end
from slipstream.loader.memory import RecycledMemory, SlotShelf
from slipstream.loader.plan import Plan, Task
from slipstream.loader.ranks import rank_and_world
from slipstream.loader.route import ENGINE, TORCH, choose, with_transform
from slipstream.loader.sampler import OrderedSampler, ShuffledSampler
from slipstream.loader.state import Position
from slipstream.loader.static import StaticBatch
from slipstream.loader.stats import Stats

T_co = TypeVar("T_co", covariant=True)


class Loader(DataLoader[T_co]):
    """A drop-in for `torch.utils.data.DataLoader`: same arguments, faster. For the same order the
    batches are the same; the order of `shuffle=True` without a `generator` is our own (see `seed`).

    Whatever it cannot speed up runs as torch runs it; `print(loader)` says which way was taken and
    why. New are, by keyword:

    - `device`: batches come there, copied ahead on a stream of their own.
    - `transform`: for datasets of `open_dataset`: a torchvision Compose, or a list of transforms.
      What the engine knows it does natively; the rest runs as given.
    - `seed`: the order of `shuffle=True`, the crops and the flips are functions of seed, epoch and
      sample alone. They are the same for any number of workers and ranks, and after resuming.
    - `on_error`: "raise", "skip" leaves bad samples out, "substitute" takes a neighbour;
      `bad_samples` lists them.
    - `decode`: who decodes packed JPEGs for a CUDA device, "cpu", "gpu", or "auto": measured while
      training. The pixels are the same.
    - `static`: every batch lies in the memory of the first, for steps that are captured into CUDA
      graphs. What you keep of a batch changes with the next.
    - `progress`: a live line with the rate and what the loop waits for.
    - `num_workers` and `prefetch_factor` can be "auto": chosen by measuring, while training.

    Without a sampler of your own the samples are dealt to the ranks of torch.distributed, or of the
    launcher's environment; every rank has the same number of batches.

    >>> import slipstream
    >>> loader = slipstream.Loader(list(range(6)), batch_size=2, shuffle=True, seed=1)
    >>> sorted(torch.cat(list(loader)).tolist())
    [0, 1, 2, 3, 4, 5]
    """

    _is_made = False

    def __init__(  # noqa: PLR0913, PLR0917  torch's own, and ours by keyword
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | str = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | str | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: torch.device | str | int | None = None,
        transform: Any = None,
        seed: int = 0,
        on_error: str = "raise",
        decode: str = "auto",
        static: bool = False,
        progress: bool = False,
    ) -> None:
        given = {
            name: value for name, value in locals().items() if name not in ("self", "__class__")
        }
        noted = note_arguments(self, given)
        _check_own_arguments(seed, on_error, decode)
        check_device(device, decode)
        dataset = with_transform(dataset, transform, seed)
        workers = auto_count("num_workers", num_workers)
        if isinstance(workers, AutoCount) and prefetch_factor is None:
            prefetch_factor = "auto"
        prefetch = auto_count("prefetch_factor", prefetch_factor)
        # Whether the order is ours: then it is dealt to the ranks and can be resumed anywhere.
        owns_order = type(sampler) in (ShuffledSampler, OrderedSampler) or (
            sampler is None and batch_sampler is None and (generator is None or not shuffle)
            and not isinstance(dataset, IterableDataset)
        )  # fmt: skip
        keyed = bool(shuffle) and owns_order and sampler is None
        own: Any = sampler
        if owns_order and sampler is None:
            samples: Any = dataset
            own = ShuffledSampler(samples, seed=seed) if shuffle else OrderedSampler(samples)
        super().__init__(
            dataset,
            batch_size,
            False if keyed else shuffle,
            own,
            batch_sampler,
            workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        # torch turns these into plain numbers; a framework that makes this loader anew hands them
        # back, and "auto" has to survive that.
        self.num_workers = workers
        self.prefetch_factor = prefetch if prefetch is not None else self.prefetch_factor
        self.device = device
        self.transform = transform
        self.seed = seed
        self.on_error = on_error
        self.decode = decode
        self.static = static
        self.progress = progress
        self._static_batch = StaticBatch() if static else None
        self._owns_order = owns_order
        if on_error != "raise" and (batch_size is None and batch_sampler is None):
            raise UsageError(f'on_error="{on_error}" needs batches; batch_size is None.')
        if on_error != "raise" and isinstance(dataset, IterableDataset):
            raise UsageError(
                f'on_error="{on_error}" needs a dataset that is asked for samples by number. An'
                " IterableDataset has to leave bad ones out by itself."
            )
        if isinstance(self.sampler, (ShuffledSampler, OrderedSampler)):
            self.sampler.follow(self)
        self._position = Position()
        self._stats = Stats()
        self._bad_samples = BadSamples()
        self._choice: Choice | None = None
        self._chosen_for: Any = None
        self._pool: Any = None
        # Of workers that are kept: torch draws no other for them.
        self._kept_seed: int | None = None
        self._tuner: Any = None
        self._balance: Any = None
        self._memory = RecycledMemory(keep=8)
        self._shelf = SlotShelf()
        self._is_made = True
        self.check_worker_number_rationality()
        if noted:
            note_end(self)

    # What torch's DataLoader gives.

    def __iter__(self) -> Any:
        """Iterate over the next epoch, or over the rest of one after `load_state_dict`."""
        choice = self._choose()
        generator = self._position.rewind(self._order_generator())
        if choice.route.kind == TORCH and not self._reads_locally():
            run = 0
            if self.num_workers > 0 and not isinstance(self.dataset, IterableDataset):
                # torch reads ahead in the next line already.
                self._follow_sampler()
                run = self._position.begin(generator)
            torch_iterator = super().__iter__()
            return LoaderIterator(self, torch_iterator=torch_iterator, generator=generator, run=run)
        _warn_of_pinning(self)
        # As torch does, in its order and from its generator: what others draw stays what it was.
        sampled, seed = self._sample(), self._kept_seed
        if seed is None:
            drawn = torch.empty((), dtype=torch.int64).random_(generator=self.generator)
            seed = int(drawn.item())
            if self.num_workers > 0:
                # Its workers' iterator begins by starting again.
                sampled = self._sample()
        self._kept_seed = seed if self.persistent_workers else None
        return LoaderIterator(self, base_seed=seed, sampled=sampled, generator=generator)

    def __len__(self) -> int:
        """Batches of a whole epoch, on this rank."""
        if self._owns_order:
            return len(self._plan())
        if isinstance(self.dataset, IterableDataset):
            return super().__len__()
        return len(super()._index_sampler)

    def check_worker_number_rationality(self) -> None:
        """torch's warning of more processes than cores; not where the engine's threads do it."""
        # torch asks while it makes its part; which way batches take is known when all is made.
        if not self._is_made:
            return
        has_many = int(self.num_workers) > usable_cores()
        if has_many and choose(self).kind != ENGINE:
            super().check_worker_number_rationality()

    @property
    def _index_sampler(self) -> Any:
        if isinstance(self.dataset, IterableDataset):
            return super()._index_sampler
        return _TorchTasks(self)

    # What is new.

    @property
    def bad_samples(self) -> BadSamples:
        """Samples that could not be had so far: `index`, `epoch`, `reason`, `substitute`."""
        return self._bad_samples

    @property
    def choice(self) -> Choice:
        """Which way batches take, with how many workers, and why."""
        if self._choice is None or self._chosen_for != self._chosen_by():
            return self._choose()
        return self._choice

    def stats(self) -> dict[str, Any]:
        """Batches, samples, bytes and seconds per stage so far, as plain numbers.

        `wait_s` is what the training loop waited for batches, `first_wait_s` for the very first,
        `loop_s` what it did in between, `wait_share` the share of waiting. `fetch_s`, `collate_s`
        and `cpu_s` (of the processor) are those of all workers together, beside the loop.
        `queue_depth` is how many batches were ready on average when one was asked for; `copy_bytes`
        went to the device, and `pin_s` was spent on page-locked copies for that.
        """
        return self._stats.report()

    def set_epoch(self, epoch: int) -> None:
        """Iterate over this epoch next. Not needed: each iteration is the next epoch by itself."""
        self._position.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the training loop is, as a small JSON-able dict, the same on every rank.

        Counts the batches that the loop was given, not those made ahead.
        """
        state = self._position.to_json()
        state["order"] = "keyed" if self._owns_order else "sampler"
        if self._owns_order:
            shuffle = isinstance(self.sampler, ShuffledSampler)
            state.update(samples=len(self.dataset), seed=self.seed, shuffle=shuffle)  # type: ignore[arg-type]
        elif (generator := self._order_generator()) is not None:
            drawn_from = self._position.generator or bytes(generator.get_state().numpy())
            state["generator"] = base64.b85encode(drawn_from).decode()
        if self._kept_seed is not None and not self._owns_order:
            state["worker_seed"] = self._kept_seed
        if not self._owns_order:
            state["batch_size"] = self.batch_size
        if self._position.draw is not None and state["position"]:
            state["draw"] = base64.b85encode(self._position.draw).decode()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()` of a loader over the same data; the number of workers may
        differ, and, unless you have a sampler of your own, so may the number of ranks.
        """
        position = Position.from_json(state)
        self._check_state(state)
        # Iterations under way count no longer.
        position.run = self._position.run
        self._position = position
        if self.persistent_workers and "worker_seed" in state:
            self._kept_seed = state["worker_seed"]
        if "generator" in state:
            self._position.restore(base64.b85decode(state["generator"]))
        if "draw" in state:
            self._position.restore_draw(base64.b85decode(state["draw"]))

    def _draws_by_sample(self) -> bool:
        """Whether a sample comes but once in an epoch, so that its random numbers are its own."""
        if self._owns_order:
            return True
        if self._auto_collation and self.batch_size is None:
            return False  # your batch_sampler may do anything
        sampler = self.sampler
        if type(sampler) is RandomSampler:
            return not sampler.replacement and sampler.num_samples <= len(sampler.data_source)
        return type(sampler) in (SequentialSampler, SubsetRandomSampler, DistributedSampler)

    def _seed_of_batches(self) -> int | None:
        """What workers seed each batch from; None where you seed: then seeds are torch's."""
        seeded = self.generator is not None or self.worker_init_fn is not None
        return self.seed if self._owns_order and not seeded else None

    def close(self) -> None:
        """End the processes that `persistent_workers` kept; the next iteration starts new ones."""
        self._kept_seed = None
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def __repr__(self) -> str:
        """The dataset, the way its batches take, and why."""
        return self.choice.describe(self, decode_line(self))

    __str__ = __repr__

    def __getstate__(self) -> dict[str, Any]:
        """All but processes and memory, which stay with this one."""
        own = ("_pool", "_kept_seed", "_memory", "_shelf", "_balance", "_static_batch")
        return {**self.__dict__, **dict.fromkeys(own)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _memory=RecycledMemory(keep=8), _shelf=SlotShelf())
        self._static_batch = StaticBatch() if self.static else None
        if isinstance(self.sampler, (ShuffledSampler, OrderedSampler)):
            self.sampler.follow(self)

    def _choose(self) -> Choice:
        """The dataset may have changed since: another transform, other samples. What was measured
        is kept as long as the way is the same.
        """
        route, choice, chosen_by = choose(self), self._choice, self._chosen_by()
        if choice is None or self._chosen_for != chosen_by or choice.route.kind != route.kind:
            choice = Choice.first(self, route)
        else:
            choice.route, choice.why = route, route.why
        self._choice, self._chosen_for = choice, chosen_by
        return choice

    def _chosen_by(self) -> tuple[Any, ...]:
        """Frameworks set some of these after construction."""
        return self.collate_fn, self.worker_init_fn, int(self.num_workers)

    # For the iterator.

    def _follow_sampler(self) -> None:
        """torch's DistributedSampler is told of epochs, and we are not."""
        epoch = getattr(self.sampler, "epoch", None)
        if not self._owns_order and type(epoch) is int:
            self._position.follow(epoch)

    def _order_generator(self) -> torch.Generator | None:
        """What your sampler draws from, as far as it shows."""
        if self._owns_order:
            return None
        own = getattr(self.sampler, "generator", None)
        return own if isinstance(own, torch.Generator) else self.generator

    def _plan(self) -> Plan:
        rank, world = rank_and_world()
        return Plan(
            samples=len(self.dataset),  # type: ignore[arg-type]
            batch_size=self.batch_size or 1,
            shuffle=isinstance(self.sampler, ShuffledSampler),
            drop_last=self.drop_last,
            seed=getattr(self.sampler, "seed", self.seed) if self._owns_order else self.seed,
            rank=rank,
            world=world,
        )

    def _sample(self) -> Iterator[Any] | None:
        """An iteration over your sampler; None where the order is ours."""
        return None if self._owns_order else _only_next(iter(super()._index_sampler))

    def _tasks(self, epoch: int, position: int, sampled: Iterator[Any] | None) -> Iterator[Task]:
        if self._owns_order:
            for task in self._plan().tasks(epoch, position):
                indices = task.indices if self._auto_collation else task.indices[0]
                yield Task(task.key, indices, task.after, task.before)
            return
        assert sampled is not None
        if self._order_generator() is None:
            sampled = self._position.watch(sampled)
        for number, indices in enumerate(sampled):
            if number >= position:
                # Drawn ahead: a sampler may fill the list that it gave again.
                own = list(indices) if self._auto_collation else indices
                yield Task(number, own, number + 1, number)

    def _reads_locally(self) -> bool:
        """Whether samples are read and collated by us where torch's own iterator could do it: with
        a policy for bad samples, or by the default collate, which we have faster.
        """
        if not self._auto_collation or self.num_workers > 0 or self.timeout > 0:
            return False
        if isinstance(self.dataset, (IterableDataset, MapDataPipe)):
            return False
        return self.on_error != "raise" or self.collate_fn is default_collate

    def _check_state(self, state: dict[str, Any]) -> None:
        mine: dict[str, Any] = {"order": "keyed" if self._owns_order else "sampler"}
        if not self._owns_order:
            mine["batch_size"] = self.batch_size
        if self._owns_order:
            mine.update(
                samples=len(self.dataset),  # type: ignore[arg-type]
                seed=self.seed,
                shuffle=isinstance(self.sampler, ShuffledSampler),
            )
        for name, value in mine.items():
            if state.get(name) != value:
                raise UsageError(
                    f"This state is of another loader: its {name} is {state.get(name)!r}, here it"
                    f" is {value!r}. Make the loader with the same data, seed and order."
                )


def _only_next(iterator: Iterator[Any]) -> Iterator[Any]:
    """The iterator, never asked for an iterator again: Lightning's batch samplers are their own,
    and begin anew every time.
    """
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


class _TorchTasks:
    """What torch's own iterators take as their sampler: the same batches, from where we are."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        # Your sampler begins now; where we are is known when the first batch is asked for.
        return self._take(self._loader._sample())

    def _take(self, sampled: Iterator[Any] | None) -> Iterator[Any]:
        position = self._loader._position
        for task in self._loader._tasks(position.running_epoch, position.start, sampled):
            yield task.indices

    def __len__(self) -> int:
        return len(self._loader)


def _warn_of_pinning(loader: Loader[Any]) -> None:
    """As torch's iterators do."""
    if loader.pin_memory and not torch.accelerator.is_available():
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, "
            "then device pinned memory won't be used.",
            stacklevel=3,
        )


def _check_own_arguments(seed: int, on_error: str, decode: str) -> None:
    if type(seed) is not int or not 0 <= seed < 1 << 64:
        raise UsageError(f"seed is {seed!r}, expected an integer from 0 to 2**64 - 1.")
    if on_error not in POLICIES:
        raise UsageError(f"on_error is {on_error!r}, expected one of {', '.join(POLICIES)}.")
    if decode not in ("auto", "cpu", "gpu"):
        raise UsageError(f'decode is {decode!r}, expected "auto", "cpu" or "gpu".')
