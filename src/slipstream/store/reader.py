"""A dataset folder: its manifest, and shards that are opened when they are first needed."""

import multiprocessing
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.errors import CorruptDataset, StorageError, UsageError
from slipstream.store.columns import ColumnNames, Columns
from slipstream.store.manifest import MANIFEST_LIMIT, MANIFEST_NAME, Manifest, parse_manifest
from slipstream.store.mapping import Map
from slipstream.store.schema import PICTURES, Field
from slipstream.store.shard import Shard, open_shard

# As they stand in `Rows`.
_PAYLOAD_COLUMNS = ("offset", "length", "crc")
_PICTURE_COLUMNS = (*_PAYLOAD_COLUMNS, "coding", "width", "height", "orientation")


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the payloads of some samples lie, in the samples' order, as the native engine takes it.

    Payload `k` is `maps[map_ids[k]][offsets[k] : offsets[k] + lengths[k]]`, inside the map by
    check. The last four are None for fields that are no pictures; `checksums` where they are not to
    be looked at.
    """

    maps: list[Map]
    map_ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    checksums: npt.NDArray[np.uint32] | None
    codings: npt.NDArray[np.uint8] | None = None
    widths: npt.NDArray[np.uint32] | None = None
    heights: npt.NDArray[np.uint32] | None = None
    orientations: npt.NDArray[np.uint8] | None = None


def read_manifest(folder: Path) -> Manifest:
    """Read and check `folder`'s manifest. Raises `UsageError` where there is none."""
    return parse_manifest(read_manifest_bytes(folder), where=str(folder / MANIFEST_NAME))


def read_manifest_bytes(folder: Path) -> bytes:
    """The manifest's bytes. Raises `CorruptDataset` when they are more than the format allows."""
    path = folder / MANIFEST_NAME
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MANIFEST_LIMIT:
                raise CorruptDataset(
                    "manifest too large", where=str(path), got=size, expected=MANIFEST_LIMIT
                )
            return file.read(size)
    except FileNotFoundError:
        partial = folder.with_name(folder.name + ".partial")
        if not folder.exists() and not partial.is_dir():
            raise UsageError(f"{folder} does not exist. Check the path.") from None
        hint = "Check the path."
        if partial.is_dir():
            hint = f"{partial} is an unfinished pack: repeat the pack command to finish it."
        elif folder.is_dir():
            hint = "Nor does it hold pictures. Give the folder that has either."
        raise UsageError(f"{folder} is not a packed dataset: no {MANIFEST_NAME}. {hint}") from None
    except NotADirectoryError:
        is_part = (folder.parent / MANIFEST_NAME).exists()
        hint = f": {folder.parent.absolute()}" if is_part else ""
        raise UsageError(
            f"{folder} is a file. Give the folder of the packed dataset{hint}."
        ) from None
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from None


class Store:
    """An open dataset folder without torch. Shards are mapped at first use and stay mapped."""

    def __init__(self, folder: Path, *, ram: bool = False) -> None:
        self.folder = folder
        # By field: samples whose payloads were found right before. Readers that look once keep it.
        self.checked: dict[int, npt.NDArray[np.bool_]] = {}
        self.manifest = read_manifest(folder)
        self.fields = self.manifest.fields
        self.numbers = {field.name: number for number, field in enumerate(self.fields)}
        self.firsts = [0, *accumulate(shard.samples for shard in self.manifest.shards)]
        self.samples = self.firsts[-1]
        self._ram = ram
        # A copy made here is shared by forked children. A child that opens by itself must not copy.
        self._may_copy = multiprocessing.parent_process() is None
        self._first_array = np.asarray(self.firsts, dtype=np.int64)
        self._columns: dict[ColumnNames, Columns] = {}
        self._shards: list[Shard | None] = [None] * len(self.manifest.shards)

    def shard(self, number: int) -> Shard:
        """Shard `number`, opened and checked if need be."""
        shard = self._shards[number]
        if shard is None:
            entry = self.manifest.shards[number]
            shard = open_shard(
                self.folder / entry.file,
                number,
                self.fields,
                entry=entry,
                first=self.firsts[number],
                ram=self._ram,
                may_copy=self._may_copy,
            )
            self._shards[number] = shard
        return shard

    def load_all(self) -> None:
        """Open every shard now."""
        for number in range(len(self._shards)):
            self.shard(number)

    def find(self, sample: int) -> tuple[Shard, int]:
        """The shard that holds a sample, and the sample's number in it."""
        number = bisect_right(self.firsts, sample) - 1
        return self.shard(number), sample - self.firsts[number]

    def field_number(self, name: str) -> int:
        """A field's place in storage order. Raises `UsageError` for an unknown name."""
        if name not in self.numbers:
            known = ", ".join(self.numbers)
            raise UsageError(f'{self.folder} has no field "{name}". Its fields: {known}.')
        return self.numbers[name]

    def picture_field(self, name: str | None) -> tuple[int, Field]:
        """The picture field called `name`, or the only one there is."""
        pictures = [field.name for field in self.fields if field.kind in PICTURES]
        named = None if name is None else self.fields[self.field_number(name)].kind
        if self._is_decoded() and (named == "array" or (name is None and not pictures)):
            raise UsageError(
                f"{self.folder} was packed with --decoded: it holds pixels, not picture files."
                " Samples hold them as arrays; slice those in place of decoding boxes."
            )
        if name is None:
            if len(pictures) != 1:
                found = ", ".join(pictures) or "none"
                raise UsageError(f"{self.folder}: name the picture field. Picture fields: {found}.")
            name = pictures[0]
        number = self.field_number(name)
        if self.fields[number].kind not in PICTURES:
            kind = self.fields[number].kind
            raise UsageError(f'Field "{name}" of {self.folder} holds {kind}, not pictures.')
        return number, self.fields[number]

    def _is_decoded(self) -> bool:
        options = self.manifest.made_by.get("options")
        return isinstance(options, dict) and options.get("decoded") is True

    def column(self, field: int, name: str, samples: npt.ArrayLike) -> npt.NDArray[Any]:
        """Values of one index column for the given samples, in their order."""
        wanted = _as_indices(samples)
        columns = self._columns_of(((field, name),))
        out = columns.empty(len(wanted))
        columns.gather(wanted, out, self.shard)
        return out[0]

    def values(
        self, fields: Sequence[int], samples: npt.ArrayLike, out: Sequence[npt.NDArray[Any]]
    ) -> None:
        """Write the numbers that these fields hold into `out`, a contiguous array for each."""
        columns = self._columns_of(tuple((field, "value") for field in fields))
        columns.gather(_as_indices(samples), out, self.shard)

    def rows(self, field: int, samples: npt.ArrayLike) -> Rows:
        """Where the payloads of the given samples lie, in their order."""
        wanted = _as_indices(samples)
        names = _PICTURE_COLUMNS if self.fields[field].kind in PICTURES else _PAYLOAD_COLUMNS
        columns = self._columns_of(tuple((field, name) for name in names))
        out = columns.empty(len(wanted))
        maps, map_ids = columns.gather(wanted, out, self.shard)
        return Rows(maps, map_ids, *out)

    def _columns_of(self, names: ColumnNames) -> Columns:
        columns = self._columns.get(names)
        if columns is None:
            made = Columns(names, self.fields, self._first_array)
            columns = self._columns.setdefault(names, made)
        return columns


def _as_indices(samples: npt.ArrayLike) -> npt.NDArray[np.int64]:
    wanted = np.asarray(samples)
    if wanted.size == 0:
        return np.empty(0, dtype=np.int64)
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
        raise UsageError(f"Sample numbers are a 1-D integer array, got {wanted.dtype}.")
    return wanted.astype(np.int64, copy=False)
