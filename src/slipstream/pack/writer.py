"""Writes one shard: payloads as they come, then the index. It gets its name when it is whole."""

import errno
import json
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from slipstream import _native
from slipstream.errors import StorageError
from slipstream.pack.fields import Encoded, Payload
from slipstream.store.format import (
    COLUMN_ALIGNMENT,
    ENTRY_BYTES,
    FOOTER_BYTES,
    Column,
    Footer,
    align,
    build_directory,
    build_footer,
    build_header,
    row_bytes,
)
from slipstream.store.manifest import SHARD_SAMPLE_LIMIT, ShardEntry
from slipstream.store.schema import ALIGNMENT, COLUMNS, NOTES_COLUMN, SHARD_ITSELF, Field

_BUFFER_BYTES = 1 << 20
_TYPECODES = {"<u8": "Q", "<u4": "I", "|u1": "B", "<i8": "q", "<f8": "d"}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def shard_name(number: int) -> str:
    """A shard's file name.

    >>> shard_name(7)
    '00007.slip'
    """
    return f"{number:05d}.slip"


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_path(folder: Path, number: int) -> Path:
    """Where shard `number` is written before it is whole."""
    return folder / (shard_name(number) + ".tmp")


def write_file(path: Path, data: bytes) -> None:
    """Write a small file so that it is there whole or not at all, even after a crash."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one clear `StorageError`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"No space left to write {folder} ({error.strerror})."
                " Finished shards are kept: free some space and repeat the command to go on."
            ) from error
        name = error.filename or folder
        raise StorageError(f"Cannot write {name}: {error.strerror or error}.") from error


class ShardWriter:
    """A shard in the making: `add` samples, then `finish`; `abort` leaves nothing behind.

    One thread at a time. Raises `OSError` when the disk refuses.
    """

    def __init__(
        self, folder: Path, number: int, fields: Sequence[Field], *, first_item: int
    ) -> None:
        self.samples = 0
        self._number = number
        self._fields = fields
        self._first_item = first_item
        self._row_bytes = row_bytes(fields)
        self._columns: dict[tuple[int, int], array[Any]] = {
            (number, id_): array(_TYPECODES[COLUMNS[id_][1]])
            for number, field in enumerate(fields)
            for id_ in field.column_ids
        }
        self._kept: list[dict[str, Any]] = []
        self._turned = 0
        self._trailing = 0
        self._last_start: dict[int, int] = {}
        self._path = folder / shard_name(number)
        self._temporary = temporary_path(folder, number)
        self._file = self._temporary.open("wb", buffering=_BUFFER_BYTES)
        header = build_header(number)
        self._header_crc = _native.crc32c(header)
        self._file.write(header)
        self._position = len(header)

    def is_full_for(self, sample: Sequence[Encoded], shard_bytes: int) -> bool:
        """Whether one more sample would make the file longer than `shard_bytes`."""
        if self.samples == 0:
            return False
        if self.samples >= SHARD_SAMPLE_LIMIT:
            return True
        position = self._position
        for number, value in enumerate(sample):
            if isinstance(value, Payload):
                start, shared = self._place(number, value, position)
                position = max(position, start) + len(value.data) - shared
        index_bytes = (self.samples + 1) * self._row_bytes + ENTRY_BYTES * (len(self._columns) + 1)
        return position + index_bytes + FOOTER_BYTES > shard_bytes

    def add(self, sample: Sequence[Encoded]) -> None:
        """Append a sample: one encoded value per field."""
        for number, value in enumerate(sample):
            if isinstance(value, Payload):
                self._add_payload(number, value)
            else:
                id_ = self._fields[number].column_ids[0]
                self._columns[(number, id_)].append(value)
        self.samples += 1

    def finish(self, *, end_item: int, skipped: list[dict[str, str]]) -> ShardEntry:
        """Write the index, sync, and give the file its name."""
        data_end = self._position
        self._pad(align(data_end, COLUMN_ALIGNMENT))
        index_offset = self._position
        notes: dict[str, Any] = {
            "kept": self._kept,
            "skipped": skipped,
            "source": [self._first_item, end_item],
        }
        if self._turned:
            notes["turned"] = self._turned
        if self._trailing:
            notes["trailing"] = self._trailing
        columns, blocks = self._lay_out(index_offset, _dump(notes))
        directory = build_directory(columns)
        self._write(directory)
        for column, block in zip(columns, blocks, strict=True):
            self._pad(column.offset)
            self._write(block)
        self._pad(align(self._position, COLUMN_ALIGNMENT))
        footer = build_footer(
            Footer(
                index_offset=index_offset,
                index_bytes=self._position - index_offset,
                samples=self.samples,
                data_end=data_end,
                columns=len(columns),
                directory_crc=_native.crc32c(directory),
                header_crc=self._header_crc,
            )
        )
        self._write(footer)
        self._file.flush()
        # Before the rename: a crash may leave the temporary file, never a short shard.
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self._path)
        sync_folder(self._path.parent)
        crc = int.from_bytes(footer[52:56], "little")
        return ShardEntry(self._path.name, self.samples, self._position, crc)

    def abort(self) -> None:
        """Remove the temporary file. Safe to call at any time, also after `finish`."""
        # On a full disk the buffered rest does not fit either; the file goes anyway.
        with suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _place(self, number: int, value: Payload, position: int) -> tuple[int, int]:
        """Where a payload starts, and how many of its first bytes already stand there."""
        last = self._last_start.get(number)
        if value.shared_bytes and last is not None:
            start = last + len(value.data) - value.shared_bytes
            if start + value.shared_bytes == position:
                return start, value.shared_bytes
        if self._fields[number].is_aligned:
            position = align(position, ALIGNMENT)
        return position, 0

    def _add_payload(self, number: int, value: Payload) -> None:
        start, shared = self._place(number, value, self._position)
        if shared == 0:
            self._pad(start)
        self._write(memoryview(value.data)[shared:])
        self._last_start[number] = start
        row: tuple[int, ...] = (start, len(value.data), _native.crc32c(value.data))
        ids = self._fields[number].column_ids
        if len(ids) > len(row):
            row += (value.width, value.height, value.coding, value.orientation)
        for id_, entry in zip(ids, row, strict=True):
            self._columns[(number, id_)].append(entry)
        self._turned += value.turned
        self._trailing += value.trailing_bytes > 0
        if value.kept:
            self._kept.append({"reason": value.kept, "sample": self.samples})

    def _lay_out(self, index_offset: int, notes: bytes) -> tuple[list[Column], list[bytes]]:
        keys = [*self._columns, (SHARD_ITSELF, NOTES_COLUMN)]
        blocks = [_little_endian(values) for values in self._columns.values()]
        blocks.append(notes)
        position = index_offset + ENTRY_BYTES * len(keys)
        columns = []
        for (field, id_), block in zip(keys, blocks, strict=True):
            position = align(position, COLUMN_ALIGNMENT)
            columns.append(Column(field, id_, position, len(block), _native.crc32c(block)))
            position += len(block)
        return columns, blocks

    def _pad(self, position: int) -> None:
        self._write(bytes(position - self._position))

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._position += len(data)


def _dump(notes: dict[str, Any]) -> bytes:
    return json.dumps(notes, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode(
        "ascii"
    )


def _little_endian(values: "array[Any]") -> bytes:
    if array("H", [1]).tobytes() == b"\x01\x00":
        return values.tobytes()
    swapped = array(values.typecode, values)
    swapped.byteswap()
    return swapped.tobytes()
