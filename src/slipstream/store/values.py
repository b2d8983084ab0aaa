"""Payload bytes to Python values, one small function per kind of field."""

import json
import math
import struct
from typing import Any

import numpy as np

from slipstream.errors import CorruptDataset
from slipstream.store.schema import PAYLOAD_LIMIT, Field, is_numpy_shape


def decode_value(field: Field, data: memoryview, where: str) -> Any:
    """The value of a payload that is no picture; arrays are writable copies.

    Raises `CorruptDataset`.

    >>> decode_value(Field("t", "text"), memoryview(b"hi"), "here")
    'hi'
    """
    if field.kind == "array":
        return _decode_array(field, data, where)
    if field.kind == "tokens":
        return np.frombuffer(data, dtype=field.dtype).copy()
    if field.kind == "bytes":
        return bytes(data)
    try:
        text = str(data, "utf-8")
        return text if field.kind == "text" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptDataset(f"not {field.kind}: {str(error)[:200]}", where=where) from None


def ragged_shape(field: Field, data: memoryview, where: str) -> tuple[int, ...]:
    """The sizes that open a ragged array's payload, checked against its length."""
    ndim = field.ndim or 0
    if len(data) < 8 * ndim:
        expected = f"at least {8 * ndim}"
        raise CorruptDataset("array is too short", where=where, got=len(data), expected=expected)
    shape = struct.unpack_from(f"<{ndim}Q", data)
    elements = math.prod(shape)
    size = elements * np.dtype(field.dtype).itemsize
    # A size of zero elsewhere would hide any number here.
    is_huge = max(shape, default=0) > PAYLOAD_LIMIT or not is_numpy_shape(shape, field.dtype)
    if size != len(data) - 8 * ndim or is_huge:
        got = f"shape {shape} with {len(data) - 8 * ndim} bytes"
        expected = "sizes whose product fits into 63 bits" if is_huge else f"{size} bytes"
        raise CorruptDataset("array sizes do not fit", where=where, got=got, expected=expected)
    return shape


def _decode_array(field: Field, data: memoryview, where: str) -> Any:
    shape, start = field.shape, 0
    if shape is None:
        shape = ragged_shape(field, data, where)
        start = 8 * len(shape)
    return np.frombuffer(data[start:], dtype=field.dtype).reshape(shape).copy()
