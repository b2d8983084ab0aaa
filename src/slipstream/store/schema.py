"""Fields of a dataset: what a sample holds, and which index columns that takes."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from slipstream.errors import CorruptDataset

KINDS = ("jpeg", "image", "array", "tokens", "bytes", "text", "json", "int", "float")
PICTURES = frozenset({"jpeg", "image"})
SCALARS = frozenset({"int", "float"})

PAYLOAD_LIMIT = 1 << 40
TEXT_LIMIT = 1 << 30
DIMENSION_LIMIT = 32
FIELD_LIMIT = 256
ALIGNMENT = 64

# Column ids of the index: name and element type.
COLUMNS: dict[int, tuple[str, str]] = {
    1: ("offset", "<u8"),
    2: ("length", "<u8"),
    3: ("crc", "<u4"),
    4: ("width", "<u4"),
    5: ("height", "<u4"),
    6: ("coding", "|u1"),
    7: ("orientation", "|u1"),
    8: ("value", "<i8"),
    9: ("value", "<f8"),
}
NOTES_COLUMN = 10
SHARD_ITSELF = 0xFFFFFFFF

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")
# Long doubles are left out: their bytes differ between machines.
_DTYPES = frozenset(
    np.dtype(code).newbyteorder("<").str
    for code in ("?", "b", "B", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of every sample. `shape` None on an array means ragged: sizes differ by sample.

    >>> Field("image", "jpeg").column_ids
    (1, 2, 3, 4, 5, 6, 7)
    >>> Field("x", "array", dtype="<f4", shape=(2, 3), ndim=2).payload_bytes
    24
    """

    name: str
    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    ndim: int | None = None
    window: int | None = None
    stride: int | None = None

    @property
    def column_ids(self) -> tuple[int, ...]:
        """Ids of the index columns this field has, in storage order."""
        if self.kind == "int":
            return (8,)
        if self.kind == "float":
            return (9,)
        return (1, 2, 3, 4, 5, 6, 7) if self.kind in PICTURES else (1, 2, 3)

    @property
    def payload_bytes(self) -> int | None:
        """Bytes of every payload where the field fixes them, else None."""
        if self.kind == "tokens" and self.window is not None:
            return self.window * np.dtype(self.dtype).itemsize
        if self.kind == "array" and self.shape is not None:
            return math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return None

    @property
    def is_aligned(self) -> bool:
        """Whether payloads start at a multiple of `ALIGNMENT`."""
        return self.kind in ("array", "tokens")

    def to_json(self) -> dict[str, Any]:
        """The field as it stands in the manifest."""
        entry: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.kind == "array":
            shape = None if self.shape is None else list(self.shape)
            entry.update(dtype=self.dtype, shape=shape, ndim=self.ndim)
        elif self.kind == "tokens":
            entry.update(dtype=self.dtype, window=self.window, stride=self.stride)
        return entry


def is_field_name(name: object) -> TypeGuard[str]:
    """Whether `name` may name a field.

    >>> is_field_name("label"), is_field_name("1st")
    (True, False)
    """
    return isinstance(name, str) and _NAME.match(name) is not None


def is_storable_dtype(dtype: str) -> bool:
    """Whether arrays of this NumPy dtype string can be stored.

    >>> is_storable_dtype("<f4"), is_storable_dtype("|O")
    (True, False)
    """
    return dtype in _DTYPES


def is_numpy_shape(shape: Sequence[int], dtype: str | None) -> bool:
    """Whether NumPy can make such an array: sizes besides a zero count as if it were one.

    >>> is_numpy_shape((3, 0), "<f4"), is_numpy_shape((1 << 40, 1 << 40, 0), "<f4")
    (True, False)
    """
    return math.prod(max(size, 1) for size in shape) * np.dtype(dtype).itemsize < 1 << 63


def parse_fields(value: object, where: str) -> tuple[Field, ...]:
    """Fields from the manifest's list. Raises `CorruptDataset`."""
    if not isinstance(value, list) or not 1 <= len(value) <= FIELD_LIMIT:
        got = len(value) if isinstance(value, list) else type(value).__name__
        raise CorruptDataset("bad list of fields", where=where, got=got, expected="1 to 256 fields")
    fields = tuple(_parse_field(entry, f"{where}: field {i}") for i, entry in enumerate(value))
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        raise CorruptDataset("field names repeat", where=where, got=names, expected="unique names")
    return fields


def _parse_field(entry: object, where: str) -> Field:
    if not isinstance(entry, dict):
        raise CorruptDataset("bad field", where=where, got=type(entry).__name__, expected="object")
    name, kind = entry.get("name"), entry.get("kind")
    if not is_field_name(name):
        expected = "at most 64 letters, digits and _ . -, a letter or _ first"
        raise CorruptDataset("bad field name", where=where, got=ascii(name)[:80], expected=expected)
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise CorruptDataset("unknown kind", where=where, got=ascii(kind)[:80], expected=known)
    if kind == "array":
        return _parse_array(name, entry, where)
    if kind == "tokens":
        return _parse_tokens(name, entry, where)
    return Field(name, kind)


def _parse_array(name: str, entry: dict[str, Any], where: str) -> Field:
    dtype = _parse_dtype(entry.get("dtype"), where, kinds="biufc")
    ndim = parse_count(entry.get("ndim"), DIMENSION_LIMIT, f"{where}: ndim")
    sizes = entry.get("shape")
    if sizes is None:
        return Field(name, "array", dtype=dtype, shape=None, ndim=ndim)
    if not isinstance(sizes, list) or len(sizes) != ndim:
        got = ascii(sizes)[:80]
        raise CorruptDataset("bad shape", where=where, got=got, expected=f"{ndim} sizes")
    shape = tuple(parse_count(size, PAYLOAD_LIMIT, f"{where}: shape") for size in sizes)
    if not is_numpy_shape(shape, dtype):
        expected = "sizes whose product fits into 63 bits"
        raise CorruptDataset("bad shape", where=where, got=ascii(sizes)[:80], expected=expected)
    field = Field(name, "array", dtype=dtype, shape=shape, ndim=ndim)
    return _within_payload_limit(field, where)


def _parse_tokens(name: str, entry: dict[str, Any], where: str) -> Field:
    dtype = _parse_dtype(entry.get("dtype"), where, kinds="iu")
    window = parse_count(entry.get("window"), PAYLOAD_LIMIT, f"{where}: window", least=1)
    stride = parse_count(entry.get("stride"), (1 << 63) - 1, f"{where}: stride", least=1)
    field = Field(name, "tokens", dtype=dtype, window=window, stride=stride)
    return _within_payload_limit(field, where)


def _parse_dtype(dtype: object, where: str, *, kinds: str) -> str:
    if not isinstance(dtype, str) or dtype not in _DTYPES or dtype[1] not in kinds:
        expected = f"a NumPy dtype string of kind {kinds}"
        raise CorruptDataset("bad dtype", where=where, got=ascii(dtype)[:80], expected=expected)
    return dtype


def _within_payload_limit(field: Field, where: str) -> Field:
    size = field.payload_bytes
    if size is not None and size > PAYLOAD_LIMIT:
        limit = f"at most {PAYLOAD_LIMIT}"
        raise CorruptDataset("payload too large", where=where, got=f"{size} bytes", expected=limit)
    return field


def parse_count(value: object, limit: int, where: str, *, least: int = 0) -> int:
    """An integer between `least` and `limit`. Raises `CorruptDataset`."""
    if type(value) is not int or not least <= value <= limit:
        expected = f"an integer from {least} to {limit}"
        raise CorruptDataset("bad number", where=where, got=ascii(value)[:80], expected=expected)
    return value
