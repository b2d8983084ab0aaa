"""Values to payloads: which kind of field a value is, and its bytes on disk."""

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.errors import UsageError
from slipstream.store.schema import PAYLOAD_LIMIT, TEXT_LIMIT, Field, is_storable_dtype

_INT_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True)
class Payload:
    """The stored bytes of one value, and what the index says about them.

    `shared_bytes` at the start repeat the end of the payload before, and need not be written again.
    `kept` is why a JPEG stayed a file, `turned` whether it was turned upright,
    `trailing_bytes` what of the file stood behind the JPEG's end and is not kept.
    """

    data: bytes | memoryview
    width: int = 0
    height: int = 0
    coding: int = 0
    orientation: int = 1
    shared_bytes: int = 0
    kept: str = ""
    turned: bool = False
    trailing_bytes: int = 0


Encoded = Payload | int | float


def infer_field(name: str, value: Any, *, kind: str = "auto") -> Field:
    """The field that holds values like this one. `kind` "auto" picks by the value's type; "ragged"
    is an array whose sizes differ by sample. Raises `UsageError`.

    >>> infer_field("x", np.zeros((2, 3), np.float32))
    Field(name='x', kind='array', dtype='<f4', shape=(2, 3), ndim=2, window=None, stride=None)
    """
    if kind == "auto":
        kind = _infer_kind(name, value)
    if kind in ("array", "ragged"):
        array = np.asarray(value)
        dtype = array.dtype.newbyteorder("<").str
        if not is_storable_dtype(dtype):
            raise UsageError(
                f'Field "{name}": cannot store arrays of {array.dtype}.'
                " Store numbers or booleans, or declare another kind in fields."
            )
        shape = None if kind == "ragged" else array.shape
        return Field(name, "array", dtype=dtype, shape=shape, ndim=array.ndim)
    return Field(name, kind)


def encode_value(field: Field, value: Any) -> Encoded:
    """A value that is no picture as it is stored. Raises `ValueError` with the reason.

    >>> encode_value(Field("n", "int"), 7)
    7
    """
    if field.kind == "int":
        return _encode_int(value)
    if field.kind == "float":
        return float(_of_type(value, float | int | np.floating | np.integer, "a number"))
    if field.kind == "array":
        return Payload(_encode_array(field, value))
    if field.kind == "tokens":
        return _encode_tokens(field, value)
    if field.kind == "bytes":
        data = _of_type(value, bytes | bytearray | memoryview, "bytes")
        return Payload(_within(bytes(data), PAYLOAD_LIMIT))
    if field.kind == "text":
        return Payload(_within(_of_type(value, str, "text").encode("utf-8"), TEXT_LIMIT))
    return Payload(_within(_encode_json(value), TEXT_LIMIT))


def _infer_kind(name: str, value: Any) -> str:
    if isinstance(value, bool | int | np.integer | np.bool_):
        return "int"
    if isinstance(value, float | np.floating):
        return "float"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes"
    if isinstance(value, np.ndarray):
        return "array"
    if value is None or isinstance(value, dict | list | tuple):
        return "json"
    raise UsageError(
        f'Field "{name}": cannot store a {type(value).__name__}.'
        " Return a picture, an array, a tensor, a number, text, bytes, or lists and dicts of them."
    )


def _encode_int(value: Any) -> int:
    number = int(_of_type(value, int | np.integer | np.bool_, "an integer"))
    if not -_INT_LIMIT <= number < _INT_LIMIT:
        raise ValueError(f"{number} does not fit into 64 bits")
    return number


def _of_type(value: Any, types: Any, name: str) -> Any:
    if not isinstance(value, types):
        raise ValueError(f"expected {name}, got {type(value).__name__} {str(value)[:40]!r}")
    return value


def _encode_array(field: Field, value: Any) -> bytes:
    array = np.asarray(value)
    dtype = array.dtype.newbyteorder("<").str
    if dtype != field.dtype:
        raise ValueError(f'field "{field.name}" holds {field.dtype}, got {dtype}')
    if array.ndim != field.ndim:
        raise ValueError(f'field "{field.name}" has {field.ndim} dimensions, got {array.ndim}')
    head = b""
    if field.shape is None:
        if max(array.shape, default=0) > PAYLOAD_LIMIT:
            raise ValueError(f"shape {list(array.shape)}, the format allows {PAYLOAD_LIMIT} a side")
        head = struct.pack(f"<{array.ndim}Q", *array.shape)
    elif array.shape != field.shape:
        raise ValueError(
            f'field "{field.name}" has shape {list(field.shape)}, got {list(array.shape)};'
            f' declare it as fields={{"{field.name}": "ragged"}} to allow any size'
        )
    return _within(head + array.astype(field.dtype, copy=False).tobytes(order="C"), PAYLOAD_LIMIT)


def _encode_tokens(field: Field, value: Any) -> Payload:
    data = np.asarray(value).astype(field.dtype, copy=False).tobytes()
    if len(data) != field.payload_bytes:
        raise ValueError(f"a window of {field.window} tokens, got {len(data)} bytes")
    assert field.window is not None and field.stride is not None
    item_bytes = len(data) // field.window
    return Payload(data, shared_bytes=max(0, field.window - field.stride) * item_bytes)


def _encode_json(value: Any) -> bytes:
    """Bytes are taken for JSON text and only checked; all else is serialized."""
    try:
        if isinstance(value, bytes):
            json.loads(value.decode("utf-8"))
            return value
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8")
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _within(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise ValueError(f"{len(data)} bytes, the format allows {limit}")
    return data
