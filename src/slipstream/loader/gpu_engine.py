"""Batches whose pictures a GPU decodes: the processor copies compressed tiles, nothing else."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from slipstream import _native
from slipstream.augment.finish import Finish, byte_values
from slipstream.augment.geometry import Windows
from slipstream.augment.lowering import Lowered
from slipstream.cuda.decoder import Decoder
from slipstream.loader.bad_samples import Refusal
from slipstream.loader.balance import Balance
from slipstream.loader.engine import Engine, as_numbers
from slipstream.loader.following import Moved
from slipstream.loader.made import Made
from slipstream.loader.memory import PinnedMemory
from slipstream.loader.pixels import decode_windows, rows_at, undecodable
from slipstream.loader.plan import Task
from slipstream.loader.readers import Column, Errors, Indices, PackedReader, Pictures
from slipstream.loader.streams import own_stream
from slipstream.loader.threaded import without_catcher
from slipstream.store.images import FILTERS, pass_order


class GpuEngine(Engine):
    """Makes batches with their pictures on the device, finished, equal to those of `Engine`.

    What the kernels cannot read (pictures that were packed as files, windows that reach over an
    edge) is decoded by the processor and put between the others.
    """

    def __init__(
        self,
        reader: PackedReader,
        lowered: Lowered,
        *,
        device: torch.device,
        balance: Balance,
        at_once: int,
        slot_bytes: int,
        **rest: Any,
    ) -> None:
        """`at_once`: how many threads may work for batches while others wait for the GPU; each
        takes about `slot_bytes` there on the way to its batches, or decodes in parts.
        """
        self.reader: PackedReader
        super().__init__(reader, lowered, memory=PinnedMemory(), finish="never", **rest)
        self._device = device
        self._balance = balance
        self._turns = threading.Semaphore(at_once)
        self._slot_bytes = slot_bytes
        self._decoder = Decoder(device)

    def make(self, task: Task, epoch: int) -> Made:
        """As `Engine.make`: a group of one."""
        (made,) = self.make_group([task], epoch)
        if isinstance(made, BaseException):
            raise made
        return made

    def make_group(self, tasks: Sequence[Task], epoch: int) -> list[Made | BaseException]:
        """Batches read and decoded together: what Python and the kernels' launches take is shared.
        All work on the device has ended: any stream may use them.
        """
        with own_stream(self._device) as stream, self._turns:
            made = self._make_group(tasks, epoch)
            if not stream.query():
                self._wait(stream)
        return made

    def _make_group(self, tasks: Sequence[Task], epoch: int) -> list[Made | BaseException]:
        started, cpu = time.perf_counter(), time.thread_time()
        try:
            parts = [as_numbers(task.indices, len(self.reader)) for task in tasks]
            draws = [self._draws(t.key, part) for t, part in zip(tasks, parts, strict=True)]
            columns, errors = self.read(np.concatenate(parts), epoch, np.concatenate(draws))
        except Exception as error:  # of one of them, maybe
            if len(tasks) == 1:
                return [without_catcher(error)]
            return [made for task in tasks for made in self._make_group([task], epoch)]
        results: list[Made | BaseException] = []
        begin = 0
        for task, part, drawn in zip(tasks, parts, draws, strict=True):
            end = begin + len(part)
            own = {name: _own(column, begin, end) for name, column in columns.items()}
            wrong = {k - begin: reason for k, reason in errors.items() if begin <= k < end}
            try:
                results.append(self._complete(task.key, part, drawn, own, wrong, epoch))
            except Exception as error:  # of this one
                results.append(without_catcher(error))
            begin = end
        for made in results:
            if isinstance(made, Made):
                made.fetch_s = (time.perf_counter() - started) / len(tasks)
                made.cpu_s = (time.thread_time() - cpu) / len(tasks)
        return results

    def _finish_pictures(self, columns: dict[str, Any], epoch: int, draws: Indices) -> None:
        super()._finish_pictures(columns, epoch, draws)
        for name, column in columns.items():
            if isinstance(column, torch.Tensor):
                columns[name] = column.to(self._device, non_blocking=True)

    def _read_pictures(
        self, name: str, indices: Indices, draws: Indices, epoch: int
    ) -> tuple[torch.Tensor, Moved, Errors]:
        """A checksum takes as long as all else that the processor does here, and the bytes stay
        mapped: it is looked at when this process reads a sample for the first time.
        """
        rows = self.reader.open_unchecked(name, indices)
        errors: Errors = {}
        windows = self.draw(rows, draws, epoch)
        size = self._common_size(windows, errors, indices)
        pixels = self._make_pixels(rows, windows, size, errors)
        if rows.checksums is not None:
            good = np.ones(len(indices), dtype=np.bool_)
            good[list(errors)] = False
            self.reader.note_checked(name, indices[good])
        return pixels, Moved(rows, windows, size), errors

    def _make_pixels(
        self, rows: Pictures, windows: Windows, size: tuple[int, int], errors: Errors
    ) -> torch.Tensor:
        finish, device = self._lowered.finish, self._device
        out = empty_for(finish, len(rows.map_ids), size, device)
        planes = out.permute(0, 3, 1, 2) if finish.kind == "array" else out
        values = byte_values(finish, out.dtype, device)
        verdicts = torch.full((len(rows.map_ids),), -1, dtype=torch.int32, device=device)
        first = len(rows.map_ids) - round(self._balance.share * len(rows.map_ids))
        left = self._decode_slices(rows, windows, size, first, planes, values, verdicts, errors)
        if left:
            self._decode_here(rows, windows, size, left, planes, values, errors)
        found = self._memory.empty((len(verdicts),), torch.int32)
        found.copy_(verdicts, non_blocking=True)
        self._wait(torch.cuda.current_stream(device))
        bad = np.flatnonzero(found.numpy() != -1)
        if len(bad):
            statuses = _native.statuses_of_verdicts(found.numpy().view(np.uint32))
            for k in bad.tolist():
                errors.setdefault(k, undecodable(int(statuses[k])))
        return out

    def _decode_slices(
        self, rows: Pictures, windows: Windows, size: tuple[int, int], first: int,
        planes: torch.Tensor, values: torch.Tensor, verdicts: torch.Tensor, errors: Errors,
    ) -> list[int]:  # fmt: skip
        """Start the kernels on all they can decode from place `first` on; returns the places that
        are left.
        """
        count, left = len(rows.map_ids), {*range(first), *windows.padded}
        assert rows.codings is not None
        while first < count:
            slices = _native.Slices(
                rows.maps, rows.map_ids, rows.offsets, rows.lengths, rows.codings, rows.checksums,
                windows.boxes, windows.flips, windows.resized, size, FILTERS[windows.filter],
                pass_order(), first, self._slot_bytes, self._threads,
            )  # fmt: skip
            slot = self._memory.empty((slices.sizes[0],), torch.uint8)
            slices.write(slot.numpy(), self._threads)
            if slices.pictures:
                self._decoder.decode(slices, slot, values, planes, verdicts)
            statuses = slices.statuses
            for k in np.flatnonzero(statuses).tolist():
                status = int(statuses[k])
                if status == _native.STATUS_UNSUPPORTED:
                    left.add(first + k)
                elif first + k not in windows.padded:
                    errors.setdefault(first + k, undecodable(status))
            first = slices.end
        for k, reason in windows.refused.items():
            errors.setdefault(k, Refusal(reason))
        return sorted(left - errors.keys())

    def _wait(self, stream: torch.cuda.Stream) -> None:
        """Until the stream has passed, asleep: a thread that spins takes a core from the others."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        self._turns.release()
        try:
            event.synchronize()
        finally:
            self._turns.acquire()

    def _decode_here(
        self, rows: Pictures, windows: Windows, size: tuple[int, int], left: list[int],
        planes: torch.Tensor, values: torch.Tensor, errors: Errors,
    ) -> None:  # fmt: skip
        pixels = self._memory.empty((len(left), size[1], size[0], 3), torch.uint8)
        trouble: Errors = {}
        decode_windows(
            rows_at(rows, left), windows.at(left), size, pixels.numpy(), trouble, self._threads
        )
        for k, reason in trouble.items():
            errors.setdefault(left[k], reason)
        places = self._memory.empty((len(left),), torch.int32)
        places.copy_(torch.tensor(left, dtype=torch.int32))
        self._decoder.place(pixels, places, values, planes)


def _own(column: Column, begin: int, end: int) -> Column:
    """One batch's part of a column, in memory of its own: who keeps a batch keeps no other, and
    autograd counts changes by memory.
    """
    part = column[begin:end]
    if not isinstance(part, torch.Tensor) or len(part) == len(column) or not part.is_cuda:
        return part
    return part.clone()


def empty_for(
    finish: Finish, count: int, size: tuple[int, int], device: torch.device
) -> torch.Tensor:
    """Memory for `count` results of a pipeline."""
    width, height = size
    if finish.kind == "array":
        return torch.empty((count, height, width, 3), dtype=torch.uint8, device=device)
    dtype = torch.uint8 if finish.kind == "uint8" else finish.dtype
    return torch.empty(
        (count, 3, height, width), dtype=dtype, device=device, memory_format=finish.memory_format
    )
