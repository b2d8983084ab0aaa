"""Where the engine's samples come from: a packed dataset, or a list of picture files."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from slipstream import _native
from slipstream.errors import CorruptDataset
from slipstream.loader.memory import Memory
from slipstream.store.dataset import Dataset
from slipstream.store.folder import FolderDataset
from slipstream.store.images import FileRows, open_files, status_text
from slipstream.store.reader import Rows
from slipstream.store.schema import PICTURES, SCALARS, Field
from slipstream.store.values import decode_value

Indices = npt.NDArray[np.int64]
Column = torch.Tensor | list[Any]
Errors = dict[int, str]
Pictures = Rows | FileRows


class Reader(Protocol):
    """Samples by number: pictures as rows for the decoder, everything else as finished columns."""

    pictures: tuple[str, ...]
    tiles: bool  # whether pictures are packed such that a GPU can decode them
    row_bytes: int  # of a sample without its pictures, about

    def __len__(self) -> int: ...

    def open_pictures(self, name: str, indices: Indices, threads: int) -> tuple[Pictures, Errors]:
        """Where the pictures of these samples lie, and what is wrong with some of them."""
        ...

    def read_columns(
        self, indices: Indices, memory: Memory, threads: int
    ) -> tuple[dict[str, Column], Errors]:
        """All fields that are no pictures: tensors [N, …], or lists where samples differ."""
        ...

    def assemble(self, values: dict[str, Any]) -> Any:
        """A sample of its fields: a dict, or a list where the dataset gives tuples."""
        ...

    def collate(self, columns: dict[str, Any]) -> Any:
        """A batch of its columns: what torch collates the samples to."""
        ...

    def where(self, index: int) -> str:
        """A sample's name for messages."""
        ...


class PackedReader:
    """Samples of a packed dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._fields = dataset.fields
        self.pictures = tuple(f.name for f in self._fields if f.kind in PICTURES)
        self._scalars = tuple(f for f in self._fields if f.kind in SCALARS)
        self._payloads = tuple(f for f in self._fields if f.kind not in PICTURES | SCALARS)
        self.tiles = any(f.kind == "jpeg" for f in self._fields)
        self.row_bytes = sum(f.payload_bytes or _GUESS_BYTES for f in self._fields)

    def __len__(self) -> int:
        return len(self._dataset)

    def open_pictures(self, name: str, indices: Indices, threads: int) -> tuple[Pictures, Errors]:
        """Rows on the maps: nothing is read yet."""
        return self._dataset.rows(name, indices), {}

    def open_unchecked(self, name: str, indices: Indices) -> Rows:
        """The same, without checksums where they were all found right in this process before."""
        rows = self._dataset.rows(name, indices)
        if self._dataset.was_checked(name, indices):
            rows = dataclasses.replace(rows, checksums=None)
        return rows

    def note_checked(self, name: str, indices: Indices) -> None:
        """Pictures of these samples were read, and their checksums are right."""
        self._dataset.note_checked(name, indices)

    def read_columns(
        self, indices: Indices, memory: Memory, threads: int
    ) -> tuple[dict[str, Column], Errors]:
        """Numbers and arrays of one shape as tensors, all else as lists."""
        numbers = {
            field.name: memory.empty((len(indices),), _SCALAR_DTYPES[field.kind])
            for field in self._scalars
        }
        if numbers:
            out = [column.numpy() for column in numbers.values()]
            self._dataset.read_values(tuple(numbers), indices, out)
        columns: dict[str, Column] = {**numbers}
        errors: Errors = {}
        for field in self._payloads:
            rows = self._dataset.rows(field.name, indices)
            if field.payload_bytes is not None:
                columns[field.name] = _gather(rows, field, memory, threads, errors)
            else:
                columns[field.name] = _decode_each(rows, field, errors)
        return columns, errors

    def assemble(self, values: dict[str, Any]) -> Any:
        """A dict, or a list where the dataset's samples are tuples."""
        chosen = {field.name: values[field.name] for field in self._fields}
        return list(chosen.values()) if self._dataset.as_tuple else chosen

    def collate(self, columns: dict[str, Any]) -> Any:
        """The same of whole columns."""
        values = {
            field.name: _collate(columns[field.name], self._dataset.as_tuple)
            for field in self._fields
        }
        return self.assemble(values)

    def where(self, index: int) -> str:
        """Dataset and number."""
        return f"{self._dataset.path}: sample {index}"


def _collate(column: Column, as_tuple: bool) -> Any:
    """A column of single values as torch leaves it: samples that are tuples give tuples. Trees of
    JSON stay what they are: whether torch can collate them depends on the batch.
    """
    return tuple(column) if as_tuple and isinstance(column, list) else column


_GUESS_BYTES = 32
_SCALAR_DTYPES = {"int": torch.int64, "float": torch.float64}


def _gather(rows: Rows, field: Field, memory: Memory, threads: int, errors: Errors) -> torch.Tensor:
    count = len(rows.map_ids)
    dtype = torch.from_numpy(np.empty(0, dtype=field.dtype)).dtype
    shape = (field.window,) if field.kind == "tokens" else field.shape
    assert shape is not None and field.payload_bytes is not None
    out = memory.empty((count, *shape), dtype)
    if out.numel() == 0:
        return out
    target = out.view(count, -1).view(torch.uint8).numpy()
    status = _native.gather(
        rows.maps, rows.map_ids, rows.offsets, rows.lengths, rows.checksums, target, threads
    )
    for k in np.flatnonzero(status).tolist():
        errors.setdefault(k, f'field "{field.name}": {status_text(int(status[k]))}')
    return out


def _decode_each(rows: Rows, field: Field, errors: Errors) -> list[Any]:
    """Values of different lengths, one by one."""
    values: list[Any] = []
    assert rows.checksums is not None
    offsets, lengths = rows.offsets.tolist(), rows.lengths.tolist()
    checksums, map_ids = rows.checksums.tolist(), rows.map_ids.tolist()
    maps = [memoryview(data) for data in rows.maps]
    for k, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        data = maps[map_ids[k]][offset : offset + length]
        value = None
        if _native.crc32c(data) != checksums[k]:
            errors.setdefault(k, f'field "{field.name}": checksum does not match')
        else:
            try:
                value = decode_value(field, data, f'field "{field.name}"')
            except CorruptDataset as error:
                errors.setdefault(k, str(error))
        values.append(torch.from_numpy(value) if isinstance(value, np.ndarray) else value)
    return values


class FileReader:
    """Samples of a list of `(path, label)`: `(picture, label)`, as torchvision's ImageFolder."""

    pictures: tuple[str, ...] = ("image",)
    tiles = False
    row_bytes = 8

    def __init__(self, samples: Sequence[tuple[str, int]]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def open_pictures(self, name: str, indices: Indices, threads: int) -> tuple[Pictures, Errors]:
        """Read the files."""
        return _open(files=[self._samples[i][0] for i in indices.tolist()], threads=threads)

    def read_columns(
        self, indices: Indices, memory: Memory, threads: int
    ) -> tuple[dict[str, Column], Errors]:
        """The labels."""
        return {"label": default_collate([self._samples[i][1] for i in indices.tolist()])}, {}

    def assemble(self, values: dict[str, Any]) -> Any:
        """What torch collates tuples to."""
        return [values["image"], values["label"]]

    collate = assemble

    def where(self, index: int) -> str:
        """The file."""
        return str(self._samples[index][0])


class FolderReader:
    """Samples of a folder that `open_dataset` has opened."""

    tiles = False
    row_bytes = 64

    def __init__(self, dataset: FolderDataset) -> None:
        self._dataset = dataset
        self.pictures: tuple[str, ...] = ("image",) if "image" in dataset.names else ()

    def __len__(self) -> int:
        return len(self._dataset)

    def open_pictures(self, name: str, indices: Indices, threads: int) -> tuple[Pictures, Errors]:
        """Read the files."""
        return _open(files=[self._dataset.paths[i] for i in indices.tolist()], threads=threads)

    def read_columns(
        self, indices: Indices, memory: Memory, threads: int
    ) -> tuple[dict[str, Column], Errors]:
        """Labels and keys."""
        columns: dict[str, Column] = {}
        for name in self._dataset.names:
            if name != "image":
                values = [self._dataset.values[name][i] for i in indices.tolist()]
                columns[name] = torch.tensor(values) if name == "label" else values
        return columns, {}

    def assemble(self, values: dict[str, Any]) -> Any:
        """As a packed dataset's."""
        chosen = {name: values[name] for name in self._dataset.names}
        return list(chosen.values()) if self._dataset.as_tuple else chosen

    def collate(self, columns: dict[str, Any]) -> Any:
        """As a packed dataset's."""
        as_tuple = self._dataset.as_tuple
        return self.assemble({k: _collate(v, as_tuple) for k, v in columns.items()})

    def where(self, index: int) -> str:
        """The file."""
        return str(self._dataset.paths[index])


def _open(files: Sequence[str], threads: int) -> tuple[Pictures, Errors]:
    opened = open_files(files, threads)
    return opened.rows, dict(opened.errors)
