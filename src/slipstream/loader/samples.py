"""A dataset of transformed pictures, for transforms that only Python can run, and for loaders that
take a Loader apart and keep its dataset.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.utils.data
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from slipstream.augment.lowering import Lowered
from slipstream.cpu import usable_cores
from slipstream.errors import UsageError
from slipstream.loader.bad_samples import error_of
from slipstream.loader.engine import Engine, as_numbers, draws_of_batch
from slipstream.loader.memory import RecycledMemory
from slipstream.loader.readers import Indices, Reader
from slipstream.loader.seeding import kept_generators, seed_for_sample


def begin_batch(dataset: Any, epoch: int, key: int | None, place: int = 0) -> None:
    """Tell all datasets that draw by epoch, also below a Subset or ConcatDataset, what comes: a
    batch, with its number where a sample can come twice in it, from this place on.
    """
    _begin(dataset, epoch, None if key is None else _Places(key, place))


@contextmanager
def batch_under_way(dataset: Any, epoch: int, key: int | None) -> Iterator[None]:
    """The same for a block of code. After it every sample draws its own numbers again."""
    begin_batch(dataset, epoch, key)
    try:
        yield
    finally:
        if key is not None:
            begin_batch(dataset, epoch, None)


@dataclass(slots=True)
class _Places:
    """Counts the places of a batch while its samples are read, one by one or together."""

    key: int
    taken: int

    def draws_of(self, numbers: Indices) -> Indices:
        first, self.taken = self.taken, self.taken + len(numbers)
        return draws_of_batch(self.key, numbers, first)


def _begin(dataset: Any, epoch: int, places: _Places | None) -> None:
    if isinstance(dataset, TransformedDataset):
        dataset.epoch, dataset.places = epoch, places
    elif isinstance(dataset, Subset):
        _begin(dataset.dataset, epoch, places)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            _begin(part, epoch, places)


class TransformedDataset(torch.utils.data.Dataset[Any]):
    """Samples whose pictures went through a pipeline, partly natively, partly as given.

    Everything else is the source dataset's: `len`, `classes` and so on. Random numbers are those of
    (seed, epoch, sample), so a sample is the same in any process; `set_epoch` chooses the epoch.
    """

    def __init__(self, source: Any, reader: Reader, lowered: Lowered, *, seed: int) -> None:
        self.source = source
        self.reader = reader
        self.lowered = lowered
        self.seed = seed
        self.epoch = 0
        # None: a sample's random numbers are its own.
        self.places: _Places | None = None
        self._engine: Engine | None = None

    def read_from(self, reader: Reader) -> None:
        """The source's samples are others now."""
        self.reader = reader
        self._engine = None

    def set_epoch(self, epoch: int) -> None:
        """Draw the random numbers of this epoch from now on, each sample its own."""
        begin_batch(self, epoch, None)

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> Any:
        """One sample. Raises `CorruptDataset`, or `UsageError` where the transform refuses it."""
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"sample {index} of a dataset of {count}")
        return self.__getitems__([index % count])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples in one call of the engine; those that differ in size one by one."""
        if self.lowered.mixes:
            raise UsageError(
                "Mixup and CutMix mix whole batches, and these samples are read one by one. Let the"
                " Loader make the batches: without a collate_fn of your own, with a batch size."
            )
        if self.lowered.geometry.size is None and len(indices) > 1:
            return [sample for index in indices for sample in self.__getitems__([index])]
        numbers = as_numbers(indices, len(self))
        draws = numbers if self.places is None else self.places.draws_of(numbers)
        columns, errors = self._get_engine().read(numbers, self.epoch, draws)
        if errors:
            where = self.reader.where
            raise error_of(errors, len(numbers), lambda place: where(int(numbers[place])))
        if not self.lowered.rest:
            return [self._sample(columns, k, draws) for k in range(len(numbers))]
        # What your transforms draw depends on the sample alone, whoever runs them.
        with kept_generators():
            samples = []
            for k, number in enumerate(draws.tolist()):
                seed_for_sample(self.seed, self.epoch, number)
                samples.append(self._sample(columns, k, draws))
            return samples

    def _sample(self, columns: dict[str, Any], place: int, draws: Indices) -> Any:
        random = self._get_engine().random(self.epoch, draws[place : place + 1])
        values: dict[str, Any] = {}
        for name, column in columns.items():
            value = column[place]
            if name in self._get_engine().pictures:
                # A copy: a transform may write into its picture, and the batch is used again.
                value = self.lowered.complete(value.numpy().copy(), random)
                if isinstance(value, Image.Image):
                    value = np.array(value)
            elif isinstance(value, torch.Tensor) and value.ndim == 0:
                value = value.item()
            values[name] = value
        sample = self.reader.assemble(values)
        return tuple(sample) if isinstance(sample, list) else sample

    def _get_engine(self) -> Engine:
        if self._engine is None:
            in_worker = torch.utils.data.get_worker_info() is not None
            self._engine = Engine(
                self.reader, self.lowered, seed=self.seed, memory=RecycledMemory(keep=2),
                threads=1 if in_worker else usable_cores(), finish="never",
            )  # fmt: skip
        return self._engine

    def __getattr__(self, name: str) -> Any:
        # Not for what unpickling asks before there is a source.
        if name.startswith("_") or "source" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.source, name)

    def __getstate__(self) -> dict[str, Any]:
        """All but the engine, which the other process makes for itself."""
        return {**self.__dict__, "_engine": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        """The source and the pipeline."""
        return f"TransformedDataset({self.source!r}, {self.lowered.describe()})"
