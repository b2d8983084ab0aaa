"""Whole batches from the native decoder, in this process. Pixels are written once, to stay."""

import operator
import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from slipstream import _native
from slipstream.augment.batch import DrawnBatch, draw_batch, planes_of
from slipstream.augment.geometry import Windows
from slipstream.augment.lowering import Lowered
from slipstream.augment.steps import Random
from slipstream.errors import UsageError
from slipstream.loader.bad_samples import (
    NEIGHBOURS,
    BadSample,
    NoNeighbour,
    error_of,
    neighbours,
)
from slipstream.loader.following import Moved, follow
from slipstream.loader.made import Made
from slipstream.loader.memory import Memory, PinnedMemory, RecycledMemory
from slipstream.loader.on_device import UnfinishedPixels
from slipstream.loader.pixels import decode_windows
from slipstream.loader.plan import Task
from slipstream.loader.readers import Column, Errors, Indices, Pictures, Reader


class Engine:
    """Makes batches of a reader's samples. Thread-safe; what it makes depends on its arguments and
    the task alone.
    """

    def __init__(
        self, reader: Reader, lowered: Lowered, *, seed: int, threads: int, memory: Memory,
        on_error: str = "raise", finish: str = "here", by_sample: bool = True,
    ) -> None:  # fmt: skip
        """`finish`: "here" in this call, "on_device" when the batch moves there, "never".
        `by_sample`: random numbers are a sample's own; otherwise its place's in the epoch, for
        orders in which a sample can come twice.
        """
        self._by_sample = by_sample
        self.reader = reader
        self._lowered = lowered
        self._seed = seed
        self._threads = threads
        self._memory = memory
        self._on_error = on_error
        self._finish = finish
        self._table = lowered.finish.table()
        followers = lowered.followers
        # Those that the pipeline is for; masks are pictures, too.
        self.pictures = tuple(name for name in reader.pictures if name not in followers.masks)
        if followers and not self.pictures:
            raise UsageError(f"{followers.describe()}, and there is no picture in a sample.")
        self._scratch = RecycledMemory(keep=4)

    def make(self, task: Task, epoch: int) -> Made:
        """One batch. Raises `CorruptDataset` for a bad sample unless `on_error` says otherwise, and
        `UsageError` where the transform refuses all of them.
        """
        started, cpu = time.perf_counter(), time.thread_time()
        indices = as_numbers(task.indices, len(self.reader))
        draws = self._draws(task.key, indices)
        columns, errors = self.read(indices, epoch, draws)
        made = self._complete(task.key, indices, draws, columns, errors, epoch)
        made.fetch_s, made.cpu_s = time.perf_counter() - started, time.thread_time() - cpu
        return made

    def _complete(
        self, key: int, indices: Indices, draws: Indices, columns: dict[str, Column],
        errors: Errors, epoch: int,
    ) -> Made:  # fmt: skip
        """A batch of what was read for it."""
        bad: list[BadSample] = []
        if errors:
            columns, draws, bad = self._mend(key, indices, draws, columns, errors, epoch)
        if len(bad) == len(indices) and self._on_error == "skip":
            return Made(None, 0, bad=bad)
        finished: dict[str, Any] = dict(columns)
        self._finish_pictures(finished, epoch, draws)
        nbytes = sum(getattr(column, "nbytes", 0) for column in finished.values())
        left = len(indices) - (len(bad) if self._on_error == "skip" else 0)
        return Made(self.reader.collate(finished), left, nbytes, bad=bad)

    def _finish_pictures(self, columns: dict[str, Any], epoch: int, draws: Indices) -> None:
        """What is left to do with whole batches: here, or when they are on the device."""
        on_device, stages = self._finish == "on_device", self._lowered.stages
        kind = "array" if on_device else self._lowered.finish.kind
        drawn: DrawnBatch | None = None
        for name in self.pictures if on_device or stages else ():
            pixels = columns[name]
            if stages:
                planes = planes_of(pixels, kind)
                drawn = draw_batch(stages, self.random(epoch, draws), *planes.shape[2:])
            if on_device:
                columns[name] = UnfinishedPixels(pixels, self._lowered.finish, drawn)
            elif drawn is not None:
                columns[name] = self._keep(drawn.run(planes))
        if drawn is not None:
            labels = drawn.mix_labels(columns)
            columns.update({name: self._keep(mixed) for name, mixed in labels.items()})

    def _keep(self, column: torch.Tensor) -> torch.Tensor:
        """The same in page-locked memory where batches are to lie there."""
        if not isinstance(self._memory, PinnedMemory) or column.is_cuda:
            return column
        return torch.empty_like(column, pin_memory=True).copy_(column)

    def random(self, epoch: int, draws: Indices) -> Random:
        """The random words of these samples in this epoch."""
        return lambda op, blocks: _native.philox(self._seed, epoch, draws, op, blocks)

    def _draws(self, key: int, indices: Indices, first: int = 0) -> Indices:
        return indices if self._by_sample else draws_of_batch(key, indices, first)

    def read(
        self, indices: Indices, epoch: int, draws: Indices
    ) -> tuple[dict[str, Column], Errors]:
        """All fields of these samples as columns, and what is wrong with some. `draws` number the
        random numbers.
        """
        columns, errors = self.reader.read_columns(indices, self._memory, self._threads)
        for name in self.pictures:
            columns[name], moved, trouble = self._read_pictures(name, indices, draws, epoch)
            if self._lowered.followers and name == self.pictures[0]:
                late = self._lowered.late_flips(self.random(epoch, draws), len(indices))
                flipped = replace(moved.windows, flips=moved.windows.flips ^ late)
                self._follow(moved._replace(windows=flipped), indices, columns, trouble)
            for place, reason in trouble.items():
                errors.setdefault(place, reason)
        return columns, errors

    def _read_pictures(
        self, name: str, indices: Indices, draws: Indices, epoch: int
    ) -> tuple[torch.Tensor, Moved, Errors]:
        rows, errors = self.reader.open_pictures(name, indices, self._threads)
        windows = self.draw(rows, draws, epoch)
        size = self._common_size(windows, errors, indices)
        pixels = self._make_pixels(rows, windows, size, errors)
        return pixels, Moved(rows, windows, size), errors

    def _follow(
        self, moved: Moved, indices: Indices, columns: dict[str, Column], errors: Errors
    ) -> None:
        masks = {
            name: self.reader.open_pictures(name, indices, self._threads)
            for name in self._lowered.followers.masks
            if name in self.reader.pictures
        }
        follow(
            self._lowered.followers, moved, masks, columns, errors,
            memory=self._memory, threads=self._threads,
        )  # fmt: skip

    def _make_pixels(
        self, rows: Pictures, windows: Windows, size: tuple[int, int], errors: Errors
    ) -> torch.Tensor:
        converts = self._finish == "here" and self._lowered.finish.kind != "array"
        memory = self._scratch if converts else self._memory
        pixels = memory.empty((len(rows.map_ids), size[1], size[0], 3), torch.uint8)
        decode_windows(rows, windows, size, pixels.numpy(), errors, self._threads)
        return self._convert(pixels) if converts else pixels

    def draw(self, rows: Pictures, draws: Indices, epoch: int) -> Windows:
        """The windows of these samples in this epoch."""
        assert rows.widths is not None and rows.heights is not None
        # A file that could not be read has no size; what is drawn for it is not used.
        return self._lowered.geometry.draw(
            np.maximum(rows.widths, 1), np.maximum(rows.heights, 1), self.random(epoch, draws)
        )

    def _common_size(self, windows: Windows, errors: Errors, indices: Indices) -> tuple[int, int]:
        if self._lowered.geometry.size is not None:
            return self._lowered.geometry.size
        good = [k for k in range(len(indices)) if k not in errors]
        if not good:
            return 1, 1
        sizes = windows.sizes
        first = sizes[good[0]]
        for k in good:
            if (sizes[k] != first).any():
                one, other = (int(indices[good[0]]), int(indices[k]))
                raise UsageError(
                    f"Pictures of a batch differ in size: sample {one} is {first[0]} x {first[1]},"
                    f" sample {other} is {sizes[k][0]} x {sizes[k][1]}. Give the loader a transform"
                    " that crops or resizes, such as RandomResizedCrop(224), or a collate_fn."
                )
        return int(first[0]), int(first[1])

    def _convert(self, pixels: torch.Tensor) -> torch.Tensor:
        count, height, width, _ = pixels.shape
        finish = self._lowered.finish
        dtype = torch.uint8 if finish.kind == "uint8" else torch.float32
        is_plain = finish.dtype == torch.float32 and not finish.channels_last
        memory = self._memory if is_plain else self._scratch
        out = memory.empty((count, 3, height, width), dtype)
        table = None if self._table is None else self._table.numpy()
        _native.convert(pixels.numpy(), out.numpy(), table, self._threads)
        if is_plain:
            return out
        shape = (count, height, width, 3) if finish.channels_last else out.shape
        rounded = self._memory.empty(tuple(shape), finish.dtype)
        if finish.channels_last:
            rounded = rounded.permute(0, 3, 1, 2)
        return rounded.copy_(out)

    def _mend(
        self, key: int, indices: Indices, draws: Indices, columns: dict[str, Column],
        errors: Errors, epoch: int,
    ) -> tuple[dict[str, Column], Indices, list[BadSample]]:  # fmt: skip
        """Columns without what is bad, what numbers their random numbers, and the bad samples."""
        if self._on_error == "raise":
            where = self.reader.where
            raise error_of(errors, len(indices), lambda place: where(int(indices[place])))
        if self._on_error == "skip":
            keep = [k for k in range(len(indices)) if k not in errors]
            kept = {name: _select(column, keep) for name, column in columns.items()}
            return (
                kept,
                draws[keep],
                [
                    BadSample(int(indices[k]), epoch, self._reason(int(indices[k]), errors[k]))
                    for k in sorted(errors)
                ],
            )
        draws = draws.copy()
        bad = []
        for k in sorted(errors):
            mended = self._substitute(key, int(indices[k]), k, columns, errors[k], epoch)
            assert mended.substitute is not None
            draws[k] = self._draws(key, np.asarray([mended.substitute], dtype=np.int64), k)[0]
            bad.append(mended)
        return columns, draws, bad

    def _reason(self, index: int, error: str) -> str:
        return f"{self.reader.where(index)}: {error}"

    def _substitute(
        self, key: int, index: int, place: int, columns: dict[str, Column], reason: str, epoch: int
    ) -> BadSample:
        for other in neighbours(index, len(self.reader)):
            indices = np.asarray([other], dtype=np.int64)
            found, errors = self.read(indices, epoch, self._draws(key, indices, place))
            if not errors:
                for name, column in columns.items():
                    columns[name] = _with_value(column, place, found[name])
                return BadSample(index, epoch, self._reason(index, reason), other)
        raise NoNeighbour(
            f"{self.reader.where(index)} is bad ({reason}), and so are the {NEIGHBOURS} after it."
            ' Mend the data, or use on_error="skip".'
        )


def as_numbers(indices: Any, count: int) -> Indices:
    """Sample numbers of a batch, counted from the front. Raises IndexError, TypeError."""
    if isinstance(indices, torch.Tensor) and indices.ndim == 1 and not indices.is_floating_point():
        indices = indices.tolist()
    if isinstance(indices, np.ndarray) and indices.ndim == 1 and indices.dtype.kind == "i":
        numbers = indices.astype(np.int64)
    else:
        numbers = np.fromiter(map(operator.index, indices), dtype=np.int64)
    # Negative ones are the largest of all without a sign: one look finds them, too.
    if len(numbers) == 0 or numbers.view(np.uint64).max() < count:
        return numbers
    if not -count <= numbers.min() <= numbers.max() < count:
        raise IndexError(f"a sample number is outside a dataset of {count}")
    return np.where(numbers < 0, numbers + count, numbers)


def draws_of_batch(key: int, indices: Indices, first: int = 0) -> Indices:
    """Numbers for the random numbers of a batch, or of a part that begins at place `first`: of each
    sample at its place, so that one that comes twice draws twice.
    """
    own = np.arange(first, first + len(indices), dtype=np.uint64)
    places = (np.uint64(key) << np.uint64(24)) + own
    return (_mix(indices.astype(np.uint64)) ^ _mix(~places)).astype(np.int64)


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Numbers that are close, far apart: the last steps of the SplitMix64 generator."""
    mixed = numbers
    for factor, shift in (
        (0x9E3779B97F4A7C15, 30),
        (0xBF58476D1CE4E5B9, 27),
        (0x94D049BB133111EB, 31),
    ):
        mixed = mixed * np.uint64(factor)
        mixed = mixed ^ (mixed >> np.uint64(shift))
    return mixed


def _with_value(column: Column, place: int, found: Column) -> Column:
    """The column with the first value found at this place, in a type that holds all of them."""
    if isinstance(column, torch.Tensor) and isinstance(found, torch.Tensor):
        column = column.to(torch.promote_types(column.dtype, found.dtype))
    column[place] = found[0]
    return column


def _select(column: Column, keep: list[int]) -> Column:
    return column[keep] if isinstance(column, torch.Tensor) else [column[k] for k in keep]
