"""One shard: a mapped file, checked step by step as its parts are used."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream import _native
from slipstream.errors import CorruptDataset, StorageError
from slipstream.store.format import (
    ENTRY_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    Column,
    Footer,
    parse_directory,
    parse_footer,
    parse_header,
)
from slipstream.store.manifest import ShardEntry
from slipstream.store.mapping import Map, keep_in_memory, map_file
from slipstream.store.schema import COLUMNS, NOTES_COLUMN, SHARD_ITSELF, TEXT_LIMIT, Field

_ORIENTATIONS = 8


def open_shard(
    path: Path,
    number: int,
    fields: Sequence[Field],
    *,
    entry: ShardEntry | None = None,
    first: int = 0,
    ram: bool = False,
    may_copy: bool = True,
) -> "Shard":
    """Map a shard and check header, footer and directory. Raises `CorruptDataset`.

    `entry` is what the manifest says about it, `first` the dataset's number of its first sample.
    Columns and payloads are checked when they are used.
    """
    try:
        data = map_file(path)
    except FileNotFoundError:
        raise CorruptDataset(
            "shard is missing", where=str(path), do="Copy it back, or pack again."
        ) from None
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from None
    if entry is not None and data.size != entry.bytes:
        raise CorruptDataset(
            "wrong file size",
            where=str(path),
            got=f"{data.size} bytes",
            expected=f"{entry.bytes}, as the manifest says",
        )
    if ram:
        data = keep_in_memory(data, may_copy=may_copy)
    footer, columns = parse_shard(data, number, fields, where=str(path))
    if entry is not None and (footer.crc, footer.samples) != (entry.crc32c, entry.samples):
        raise CorruptDataset(
            "not the shard that the manifest lists",
            where=str(path),
            got=f"{footer.samples} samples, footer {footer.crc:#010x}",
            expected=f"{entry.samples} samples, footer {entry.crc32c:#010x}",
        )
    return Shard(str(path), data, tuple(fields), footer, columns, first=first)


def parse_shard(
    data: Map, number: int, fields: Sequence[Field], *, where: str
) -> tuple[Footer, tuple[Column, ...]]:
    """Check header, footer and directory of a shard in memory. Raises `CorruptDataset`."""
    view = memoryview(data)
    footer = parse_footer(view[-FOOTER_BYTES:], data.size, where)
    parse_header(view[:HEADER_BYTES], number, footer.header_crc, where)
    start = footer.index_offset
    directory = view[start : start + footer.columns * ENTRY_BYTES]
    return footer, parse_directory(directory, footer, fields, where)


class Shard:
    """A mapped shard. `map` is its whole file as read-only bytes; `columns` where its columns lie.

    Thread-safe: what is cached is computed the same by whoever comes first.
    """

    def __init__(
        self,
        where: str,
        data: Map,
        fields: tuple[Field, ...],
        footer: Footer,
        columns: tuple[Column, ...],
        *,
        first: int = 0,
    ) -> None:
        self.where = where
        self.map = data
        self.fields = fields
        self.footer = footer
        self.columns = {(column.field, column.id): column for column in columns}
        self.samples = footer.samples
        self.first = first
        self._view = memoryview(data)
        self._loaded: dict[tuple[int, int], npt.NDArray[Any]] = {}
        self._ranges_checked: set[int] = set()

    def column(self, field: int, name: str) -> npt.NDArray[Any]:
        """A field's column as a read-only view, checked at first use: `offset`, `length`, `crc`,
        `width`, `height`, `coding`, `orientation` or `value`. Raises `CorruptDataset`.
        """
        for id_ in self.fields[field].column_ids:
            if COLUMNS[id_][0] == name:
                break
        else:
            raise KeyError(f'field "{self.fields[field].name}" has no column "{name}"')
        if name in ("offset", "length") and field not in self._ranges_checked:
            self._check_ranges(field)
            self._ranges_checked.add(field)
        return self._load(field, id_)

    def payload(self, field: int, sample: int) -> memoryview:
        """A payload's bytes on the map, checked against its CRC. Raises `CorruptDataset`."""
        offset = int(self.column(field, "offset")[sample])
        data = self._view[offset : offset + int(self.column(field, "length")[sample])]
        expected = int(self.column(field, "crc")[sample])
        got = _native.crc32c(data)
        if got != expected:
            raise CorruptDataset(
                "payload checksum does not match",
                where=self._place(field, sample),
                got=f"{got:#010x}",
                expected=f"{expected:#010x}",
            )
        return data

    def key(self, local: int) -> str:
        """The key of a sample; its number where there is none to be had."""
        for number, field in enumerate(self.fields):
            if field.name == "key" and field.kind == "text":
                try:
                    return str(self.payload(number, local), "utf-8")
                except (CorruptDataset, ValueError):
                    break
        return str(self.first + local)

    def notes(self) -> dict[str, Any]:
        """The shard's notes. Raises `CorruptDataset`."""
        column = self.columns[(SHARD_ITSELF, NOTES_COLUMN)]
        data = self._checked_bytes(column, "notes")
        try:
            notes = json.loads(bytes(data).decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise CorruptDataset(f"notes are not JSON: {error}", where=self.where) from None
        if not isinstance(notes, dict):
            raise CorruptDataset("notes are no object", where=self.where, got=type(notes).__name__)
        if not _are_notes(notes, self.samples):
            raise CorruptDataset("notes do not have the form that they should", where=self.where)
        return notes

    def check_column(self, field: int, id_: int) -> None:
        """Check one column's CRC and values. Raises `CorruptDataset`."""
        self._load(field, id_)

    def _load(self, field: int, id_: int) -> npt.NDArray[Any]:
        loaded = self._loaded.get((field, id_))
        if loaded is not None:
            return loaded
        name, dtype = COLUMNS[id_]
        label = f'column "{name}" of field "{self.fields[field].name}"'
        data = self._checked_bytes(self.columns[(field, id_)], label)
        values = np.frombuffer(data, dtype=dtype)
        _check_values(name, values, f"{self.where}: {label}")
        self._loaded[(field, id_)] = values
        return values

    def _checked_bytes(self, column: Column, label: str) -> memoryview:
        data = self._view[column.offset : column.offset + column.bytes]
        got = _native.crc32c(data)
        if got != column.crc:
            raise CorruptDataset(
                f"{label}: checksum does not match",
                where=self.where,
                got=f"{got:#010x}",
                expected=f"{column.crc:#010x}",
            )
        return data

    def _place(self, field: int, sample: int) -> str:
        name = self.fields[field].name
        return f'{self.where}: sample {self.first + sample}, field "{name}"'

    def _check_ranges(self, field: int) -> None:
        """All payloads lie inside the data region and have the size that the field fixes."""
        spec = self.fields[field]
        offsets, lengths = self._load(field, 1), self._load(field, 2)
        end = np.uint64(self.footer.data_end)
        # Written without sums, which could wrap around.
        inside = (offsets >= HEADER_BYTES) & (offsets <= end)
        inside &= lengths <= np.where(inside, end - offsets, np.uint64(0))
        if not inside.all():
            bad = int(np.argmin(inside))
            raise CorruptDataset(
                "payload lies outside the data region",
                where=self._place(field, bad),
                got=f"{offsets[bad]} + {lengths[bad]}",
                expected=f"{HEADER_BYTES} to {end}",
            )
        fixed = spec.payload_bytes
        limit = TEXT_LIMIT if spec.kind in ("text", "json") else None
        wrong = lengths != fixed if fixed is not None else lengths > (limit or end)
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise CorruptDataset(
                "payload of a wrong size",
                where=self._place(field, bad),
                got=f"{lengths[bad]} bytes",
                expected=fixed if fixed is not None else f"at most {limit}",
            )


def _check_values(name: str, values: npt.NDArray[Any], where: str) -> None:
    if name == "coding":
        least, most = 0, 1
    elif name == "orientation":
        least, most = 1, _ORIENTATIONS
    elif name in ("width", "height"):
        least, most = 1, 0xFFFFFFFF
    else:
        return
    if values.size and (int(values.min()) < least or int(values.max()) > most):
        got = f"{values.min()} to {values.max()}"
        raise CorruptDataset(
            "values out of range", where=where, got=got, expected=f"{least} to {most}"
        )


def _are_notes(notes: dict[str, Any], samples: int) -> bool:
    kept, skipped = notes.get("kept"), notes.get("skipped")
    counts = (notes.get("turned", 0), notes.get("trailing", 0))
    return (
        isinstance(kept, list)
        and isinstance(skipped, list)
        and all(isinstance(entry, dict) for entry in [*kept, *skipped])
        and all(isinstance(entry.get("reason"), str) for entry in [*kept, *skipped])
        and all(isinstance(entry.get("key"), str) for entry in skipped)
        and all(type(entry.get("sample")) is int for entry in kept)
        and all(0 <= entry["sample"] < samples for entry in kept)
        and all(type(count) is int for count in counts)
    )
