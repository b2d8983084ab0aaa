"""A shard's fixed structures: header, footer, directory. Pure functions over bytes.

Every number is checked against the file's size before anything is read through it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream import _native
from slipstream.errors import CorruptDataset
from slipstream.store.manifest import FORMAT_VERSION, SHARD_SAMPLE_LIMIT
from slipstream.store.schema import COLUMNS, NOTES_COLUMN, SHARD_ITSELF, TEXT_LIMIT, Field

HEADER_BYTES = 32
FOOTER_BYTES = 64
ENTRY_BYTES = 32
COLUMN_LIMIT = 4096
COLUMN_ALIGNMENT = 8

_HEADER = struct.Struct("<8sIIQQ")
_FOOTER = struct.Struct("<QQQQIIIIII8s")
_HEADER_MAGIC = b"SLIPDATA"
_FOOTER_MAGIC = b"SLIPINDX"
_FOOTER_CRC_SPAN = 52
_ENTRY = np.dtype(
    [
        ("field", "<u4"),
        ("column", "<u4"),
        ("offset", "<u8"),
        ("bytes", "<u8"),
        ("crc", "<u4"),
        ("zero", "<u4"),
    ]
)

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Footer:
    """The last 64 bytes of a shard, checked. `crc` is what the manifest keeps."""

    index_offset: int
    index_bytes: int
    samples: int
    data_end: int
    columns: int
    directory_crc: int
    header_crc: int
    crc: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A column's place in the file. `field` is `SHARD_ITSELF` for the notes."""

    field: int
    id: int
    offset: int
    bytes: int
    crc: int


def align(position: int, boundary: int) -> int:
    """The next multiple of `boundary`.

    >>> align(33, 8)
    40
    """
    return -(-position // boundary) * boundary


def expected_columns(fields: Sequence[Field]) -> list[tuple[int, int]]:
    """(field number, column id) of every column a shard must have, in order."""
    columns = [(number, id_) for number, field in enumerate(fields) for id_ in field.column_ids]
    return [*columns, (SHARD_ITSELF, NOTES_COLUMN)]


def row_bytes(fields: Sequence[Field]) -> int:
    """Index bytes that one sample takes."""
    return sum(np.dtype(COLUMNS[id_][1]).itemsize for f in fields for id_ in f.column_ids)


def build_header(number: int) -> bytes:
    """The 32 bytes that open shard `number`."""
    return _HEADER.pack(_HEADER_MAGIC, FORMAT_VERSION, HEADER_BYTES, number, 0)


def parse_header(data: Bytes, number: int, header_crc: int, where: str) -> None:
    """Check a shard's first 32 bytes. Raises `CorruptDataset`."""
    if len(data) != HEADER_BYTES:
        raise CorruptDataset("short header", where=where, got=len(data), expected="32 bytes")
    magic, version, size, found, zero = _HEADER.unpack(data)
    if magic != _HEADER_MAGIC:
        raise CorruptDataset("bad header magic", where=where, got=magic, expected=_HEADER_MAGIC)
    _check_version(version, f"{where}: header")
    if _native.crc32c(data) != header_crc:
        raise _mismatch("header", _native.crc32c(data), header_crc, where)
    if size != HEADER_BYTES or zero != 0:
        raise CorruptDataset("bad header", where=where, got=(size, zero), expected=(32, 0))
    if found != number:
        raise CorruptDataset("wrong shard number", where=where, got=found, expected=number)


def build_footer(footer: Footer) -> bytes:
    """The 64 bytes that close a shard."""
    body = _FOOTER.pack(
        footer.index_offset,
        footer.index_bytes,
        footer.samples,
        footer.data_end,
        footer.columns,
        footer.directory_crc,
        FORMAT_VERSION,
        footer.header_crc,
        0,
        0,
        _FOOTER_MAGIC,
    )[:_FOOTER_CRC_SPAN]
    return body + struct.pack("<I8s", _native.crc32c(body), _FOOTER_MAGIC)


def parse_footer(data: Bytes, file_bytes: int, where: str) -> Footer:
    """Check and read a shard's last 64 bytes. Raises `CorruptDataset`."""
    if len(data) != FOOTER_BYTES or file_bytes < HEADER_BYTES + FOOTER_BYTES:
        raise CorruptDataset(
            "file too short", where=where, got=f"{file_bytes} bytes", expected="at least 96"
        )
    (index_offset, index_bytes, samples, data_end, columns, directory_crc, version, header_crc) = (
        values := _FOOTER.unpack(data)
    )[:8]
    zero, crc, magic = values[8:]
    if magic != _FOOTER_MAGIC:
        raise CorruptDataset("bad footer magic", where=where, got=magic, expected=_FOOTER_MAGIC)
    _check_version(version, f"{where}: footer")
    found = _native.crc32c(data[:_FOOTER_CRC_SPAN])
    if found != crc:
        raise _mismatch("footer", found, crc, where)
    if zero != 0:
        raise CorruptDataset("reserved bytes in the footer", where=where, got=zero, expected=0)
    footer = Footer(
        index_offset, index_bytes, samples, data_end, columns, directory_crc, header_crc, crc
    )
    _check_footer(footer, file_bytes, where)
    return footer


def build_directory(columns: Sequence[Column]) -> bytes:
    """The directory's bytes."""
    rows = [(c.field, c.id, c.offset, c.bytes, c.crc, 0) for c in columns]
    return np.array(rows, dtype=_ENTRY).tobytes()


def parse_directory(
    data: Bytes, footer: Footer, fields: Sequence[Field], where: str
) -> tuple[Column, ...]:
    """Check the directory against its CRC, the schema and the file's size. Raises
    `CorruptDataset`.
    """
    if len(data) != footer.columns * ENTRY_BYTES:
        expected = f"{footer.columns * ENTRY_BYTES} bytes"
        raise CorruptDataset("short directory", where=where, got=len(data), expected=expected)
    found = _native.crc32c(data)
    if found != footer.directory_crc:
        raise _mismatch("directory", found, footer.directory_crc, where)
    wanted = expected_columns(fields)
    if len(wanted) != footer.columns:
        raise CorruptDataset(
            "wrong number of columns", where=where, got=footer.columns, expected=len(wanted)
        )
    entries = np.frombuffer(data, dtype=_ENTRY).tolist()
    columns: list[Column] = []
    end = footer.index_offset + len(data)
    for entry, (field, id_) in zip(entries, wanted, strict=True):
        column = _check_entry(entry, field, id_, footer, where)
        if column.offset < end:
            raise CorruptDataset(
                f"column {id_} overlaps", where=where, got=column.offset, expected=f"from {end}"
            )
        end = column.offset + column.bytes
        columns.append(column)
    return tuple(columns)


def _check_entry(
    entry: tuple[int, int, int, int, int, int], field: int, id_: int, footer: Footer, where: str
) -> Column:
    column = Column(*entry[:5])
    if (column.field, column.id) != (field, id_) or entry[5] != 0:
        got = (column.field, column.id, entry[5])
        raise CorruptDataset("wrong column", where=where, got=got, expected=(field, id_, 0))
    place = f"{where}: column {id_}"
    if id_ == NOTES_COLUMN:
        if column.bytes > TEXT_LIMIT:
            raise CorruptDataset("notes too large", where=place, got=column.bytes)
    else:
        size = footer.samples * np.dtype(COLUMNS[id_][1]).itemsize
        if column.bytes != size:
            raise CorruptDataset("wrong size", where=place, got=column.bytes, expected=size)
    limit = footer.index_offset + footer.index_bytes
    if column.offset % COLUMN_ALIGNMENT or column.offset + column.bytes > limit:
        expected = f"a multiple of 8, ending by {limit}"
        got_place = f"{column.offset} + {column.bytes}"
        raise CorruptDataset("outside the index", where=place, got=got_place, expected=expected)
    return column


def _check_footer(footer: Footer, file_bytes: int, where: str) -> None:
    total = footer.index_offset + footer.index_bytes + FOOTER_BYTES
    if total != file_bytes:
        raise CorruptDataset(
            "file size does not fit", where=where, got=f"{file_bytes} bytes", expected=total
        )
    if not HEADER_BYTES <= footer.data_end <= footer.index_offset:
        expected = f"32 to {footer.index_offset}"
        raise CorruptDataset("bad data_end", where=where, got=footer.data_end, expected=expected)
    if footer.index_offset != align(footer.data_end, COLUMN_ALIGNMENT):
        expected_offset = align(footer.data_end, COLUMN_ALIGNMENT)
        raise CorruptDataset(
            "bad index_offset", where=where, got=footer.index_offset, expected=expected_offset
        )
    if footer.samples > SHARD_SAMPLE_LIMIT:
        raise CorruptDataset("too many samples", where=where, got=footer.samples)
    if footer.columns > COLUMN_LIMIT or footer.columns * ENTRY_BYTES > footer.index_bytes:
        expected = f"at most {min(COLUMN_LIMIT, footer.index_bytes // ENTRY_BYTES)}"
        raise CorruptDataset("too many columns", where=where, got=footer.columns, expected=expected)


def _check_version(version: int, where: str) -> None:
    if version != FORMAT_VERSION:
        raise CorruptDataset(
            "unknown format version",
            where=where,
            got=version,
            expected=FORMAT_VERSION,
            do="A newer Slipstream may have written it: upgrade.",
        )


def _mismatch(what: str, got: int, expected: int, where: str) -> CorruptDataset:
    return CorruptDataset(
        f"{what} checksum does not match",
        where=where,
        got=f"{got:#010x}",
        expected=f"{expected:#010x}",
    )
