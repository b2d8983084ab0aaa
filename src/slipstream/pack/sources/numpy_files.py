"""`.npy` and `.npz` files: a sample per row, or windows of tokens. Mapped, not loaded, where
possible.
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.errors import UsageError
from slipstream.pack.sources.source import Item, hash_lines
from slipstream.store.schema import Field, is_field_name, is_storable_dtype

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class NumpySource:
    """Rows of some arrays, or windows of one; see `slipstream.pack.sources.source`."""

    kind: str
    arrays: tuple[Array, ...]
    fields: tuple[Field, ...]
    length: int
    stamp: str
    classes: tuple[str, ...] | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def total_bytes(self) -> int:
        """Bytes of the elements."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def digest(self) -> str:
        """Hash of names, types and shapes."""
        return hash_lines(
            f"{f.name}|{array.dtype.str}|{array.shape}"
            for f, array in zip(self.fields, self.arrays, strict=True)
        )

    def items(self, start: int) -> Iterator[Item]:
        """Items from `start` on."""
        first = self.fields[0]
        for index in range(start, self.length):
            if first.kind == "tokens":
                assert first.stride is not None and first.window is not None
                begin = index * first.stride
                values: tuple[Any, ...] = (self.arrays[0][begin : begin + first.window],)
            else:
                values = tuple(array[index] for array in self.arrays)
            yield Item(str(index), values)


def open_numpy(path: Path, *, window: int | None, stride: int | None) -> NumpySource:
    """Rows along the first axis: 1-D integers and floats become numbers, higher arrays `array`.

    With `window` (and `stride`, by default the same) a 1-D integer array becomes windows of tokens.
    """
    arrays = _open_npz(path) if path.suffix.lower() == ".npz" else {"x": _open_npy(path)}
    state = path.stat()
    if not arrays:
        raise UsageError(f"{path} holds no arrays.")
    for name, array in arrays.items():
        if array.ndim == 0:
            raise UsageError(f'{path}: array "{name}" is a single number. Expected rows.')
    stamp = hash_lines([f"{path.name}|{state.st_size}|{state.st_mtime_ns}"])
    if window is not None or stride is not None:
        return _open_tokens(path, arrays, window, stride, stamp)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in lengths.items())
        raise UsageError(f"{path}: arrays have different numbers of rows ({told}).")
    fields = tuple(_row_field(path, name, array) for name, array in arrays.items())
    count = next(iter(lengths.values()))
    return NumpySource("numpy", tuple(arrays.values()), fields, count, stamp)


def _open_tokens(
    path: Path, arrays: dict[str, Array], window: int | None, stride: int | None, stamp: str
) -> NumpySource:
    if window is None or window < 1 or (stride is not None and stride < 1):
        raise UsageError(f"window is {window}, stride {stride}: expected numbers of tokens from 1.")
    name, array = next(iter(arrays.items()))
    if len(arrays) > 1 or array.ndim != 1 or array.dtype.kind not in "iu":
        told = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in arrays.items())
        raise UsageError(f"{path}: windows are cut from one 1-D integer array; found {told}.")
    if len(array) < window:
        raise UsageError(f"{path}: {len(array)} tokens are less than one window of {window}.")
    stride = window if stride is None else stride
    dtype = array.dtype.newbyteorder("<").str
    tokens = Field(
        name if name != "x" else "tokens", "tokens", dtype=dtype, window=window, stride=stride
    )
    count = (len(array) - window) // stride + 1
    left = len(array) - ((count - 1) * stride + window)
    remarks = [f"the last {left} tokens fill no window and were left out"] if left else []
    return NumpySource("numpy tokens", (array,), (tokens,), count, stamp, remarks=remarks)


def _row_field(path: Path, name: str, array: Array) -> Field:
    if not is_field_name(name):
        raise UsageError(f'{path}: "{name}" cannot name a field. Use letters, digits and _ . -')
    if array.ndim == 1 and array.dtype.kind in "biu":
        return Field(name, "int")
    if array.ndim == 1 and array.dtype.str[1:] in ("f2", "f4", "f8"):
        return Field(name, "float")
    if array.ndim == 1 and array.dtype.kind == "U":
        return Field(name, "text")
    dtype = array.dtype.newbyteorder("<").str
    if not is_storable_dtype(dtype):
        raise UsageError(f'{path}: array "{name}" has type {array.dtype}, which cannot be stored.')
    return Field(name, "array", dtype=dtype, shape=array.shape[1:], ndim=array.ndim - 1)


def _open_npy(path: Path) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"{path} cannot be read as .npy: {error}.") from None
    return array


def _open_npz(path: Path) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                member.filename.removesuffix(".npy"): _open_member(path, archive, member)
                for member in archive.infolist()
            }
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} cannot be read as .npz: {error}.") from None


def _open_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Stored members are mapped in place; compressed ones have to be loaded."""
    with archive.open(member) as file:
        if member.compress_type != zipfile.ZIP_STORED:
            loaded: Array = np.lib.format.read_array(file, allow_pickle=False)
            return loaded
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file)
        header_bytes = file.tell()
    if dtype.hasobject:
        raise ValueError(f"{member.filename} holds Python objects")
    with path.open("rb") as raw:
        raw.seek(member.header_offset + 26)
        name_bytes = int.from_bytes(raw.read(2), "little")
        extra_bytes = int.from_bytes(raw.read(2), "little")
    start = member.header_offset + 30 + name_bytes + extra_bytes + header_bytes
    if 0 in shape:
        return np.empty(shape, dtype=dtype)
    order: Any = "F" if is_fortran else "C"
    return np.memmap(path, dtype=dtype, mode="r", offset=start, shape=shape, order=order)
