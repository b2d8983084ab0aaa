"""`open_dataset`: a packed dataset as a map-style torch Dataset."""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import psutil
import torch.utils.data

from slipstream.errors import CorruptDataset, UsageError
from slipstream.store.folder import FolderDataset, holds_pictures, open_picture_folder
from slipstream.store.images import decode_whole
from slipstream.store.reader import Rows, Store
from slipstream.store.schema import PICTURES, SCALARS, Field
from slipstream.store.shard import Shard
from slipstream.store.values import decode_value

_Indices = range | npt.NDArray[np.int64]


def open_dataset(
    path: str | Path,
    *,
    fields: Sequence[str] | None = None,
    as_tuple: bool = False,
    cache: str | None = None,
) -> "Dataset | FolderDataset":
    """Open a packed dataset. Reads its manifest only; shards are mapped when they are first used.
    A folder of pictures that is not packed opens as well, with the same fields.

    `fields` names those that samples shall hold, all by default. Samples are dicts, or tuples in
    the order of the fields with `as_tuple`. `cache="ram"` keeps all shards in memory.
    Raises `UsageError` when there is no dataset, `CorruptDataset` when it is damaged.

    >>> import tempfile, slipstream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = slipstream.pack_dataset([{"n": k} for k in range(9)], f"{folder}/a.slip")
    ...     dataset = slipstream.open_dataset(f"{folder}/a.slip")
    ...     print(len(dataset), dataset[-1], [sample["n"] for sample in dataset[2:8:2]])
    9 {'n': 8} [2, 4, 6]
    """
    if cache not in (None, "ram"):
        raise UsageError(f'cache is None or "ram", got {cache!r}.')
    if isinstance(fields, str):
        raise UsageError(f"fields is the text {fields!r}. Give a list: fields=[{fields!r}].")
    folder = Path(path).expanduser().absolute()
    if holds_pictures(folder):
        if cache is not None:
            raise UsageError(f'cache="ram" is for packed datasets; {folder} holds picture files.')
        return open_picture_folder(folder, fields, as_tuple=as_tuple)
    store = Store(folder, ram=cache == "ram")
    if cache == "ram":
        _check_memory(store)
        store.load_all()
    names = tuple(store.numbers) if fields is None else tuple(fields)
    for name in names:
        store.field_number(name)
    return Dataset(store, names, range(store.samples), as_tuple=as_tuple, cache=cache)


class Dataset(torch.utils.data.Dataset[Any]):
    """A packed dataset, or a view of some of its samples. Made by `open_dataset`.

    `dataset[i]` is a dict from field name to value, or a tuple: pictures as uint8[height, width,
    3] RGB, arrays and tokens as writable copies, the rest as plain Python values. `dataset[a:b]`
    and `dataset.subset(numbers)` are views that share the open shards. Reading is thread-safe.
    Pickles as path and options; the other process opens the files anew. EXIF orientation is not
    applied, as in Pillow; `column("image", "orientation")` has it.
    """

    def __init__(
        self,
        store: Store,
        names: tuple[str, ...],
        view: _Indices,
        *,
        as_tuple: bool,
        cache: str | None,
    ) -> None:
        self.as_tuple = as_tuple
        self._store = store
        self._names = names
        self._view = view
        self._cache = cache

    @property
    def path(self) -> Path:
        """The dataset's folder."""
        return self._store.folder

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that samples hold, in the order of their dict."""
        return tuple(self._store.fields[self._store.numbers[name]] for name in self._names)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names that the integers of `label` number, where there are any."""
        return self._store.manifest.classes

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._view)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> "Dataset": ...
    def __getitem__(self, index: int | slice) -> Any:
        """One sample, or a view of several."""
        if isinstance(index, slice):
            return self._narrow(self._view[index])
        return self._read(self._resolve(index))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples in the given order; what torch's loader calls for a batch."""
        return [self._read(self._resolve(index)) for index in indices]

    def subset(self, indices: npt.ArrayLike) -> "Dataset":
        """A view of the samples with these numbers, in this order; numbers may repeat."""
        # A copy: what is given may change later.
        return self._narrow(np.array(self._numbers(indices)))

    def raw(self, index: int, field: str) -> memoryview:
        """A payload's stored bytes on the map, read-only, checked against their CRC. No copy.

        A JPEG's bytes are a tile record where `column(field, "coding", [index])` is 1.
        """
        number = self._store.field_number(field)
        if self._store.fields[number].kind in SCALARS:
            raise UsageError(
                f'Field "{field}" stands in the index: use column("{field}", "value").'
            )
        shard, local = self._store.find(self._resolve(index))
        return shard.payload(number, local)

    def rows(self, field: str, indices: npt.ArrayLike) -> Rows:
        """Where the payloads of these samples lie: maps, offsets, lengths, CRCs, codings as
        arrays.
        """
        return self._store.rows(self._store.field_number(field), self._numbers(indices))

    def was_checked(self, field: str, indices: npt.ArrayLike) -> bool:
        """Whether `note_checked` was told of all these samples, through any view."""
        checked = self._store.checked.get(self._store.field_number(field))
        return checked is not None and bool(checked[self._numbers(indices)].all())

    def note_checked(self, field: str, indices: npt.ArrayLike) -> None:
        """The checksums of these samples' payloads were found right, in this process."""
        number = self._store.field_number(field)
        nothing = np.zeros(self._store.samples, dtype=np.bool_)
        self._store.checked.setdefault(number, nothing)[self._numbers(indices)] = True

    def column(
        self, field: str, name: str, indices: npt.ArrayLike | None = None
    ) -> npt.NDArray[Any]:
        """One index column for these samples, or for all: `value` of numbers; `width`, `height`,
        `coding`, `orientation` of pictures; `offset`, `length`, `crc` of all that has a payload.
        """
        wanted = self._numbers(np.arange(len(self)) if indices is None else indices)
        try:
            return self._store.column(self._store.field_number(field), name, wanted)
        except KeyError as error:
            raise UsageError(f"{self.path}: {error.args[0]}.") from None

    def read_values(
        self, fields: Sequence[str], indices: npt.ArrayLike, out: Sequence[npt.NDArray[Any]]
    ) -> None:
        """Write the numbers that these fields hold, all integers or floats, into `out`: a
        contiguous int64 or float64 array for each field.
        """
        numbers = [self._store.field_number(field) for field in fields]
        self._store.values(numbers, self._numbers(indices), out)

    def picture_field(self, name: str | None = None) -> str:
        """The name of the picture field that is meant: `name`, or the only one."""
        return self._store.picture_field(name)[1].name

    def __repr__(self) -> str:
        """Path, size and fields."""
        fields = ", ".join(f"{field.name}: {field.kind}" for field in self.fields)
        return f"Dataset({str(self.path)!r}, {len(self)} samples, {fields})"

    def __getstate__(self) -> dict[str, Any]:
        """Path and options: no data travels between processes."""
        view = self._view
        return {
            "path": str(self.path),
            "manifest": self._store.manifest.crc32c,
            "names": self._names,
            "view": (view.start, view.stop, view.step) if isinstance(view, range) else view,
            "as_tuple": self.as_tuple,
            "cache": self._cache,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the folder anew; it must hold the same dataset."""
        self._store = Store(Path(state["path"]), ram=state["cache"] == "ram")
        if self._store.manifest.crc32c != state["manifest"]:
            raise UsageError(
                f"{state['path']} has changed since this Dataset was opened. Reopen it."
            )
        self._names = state["names"]
        view = state["view"]
        self._view = range(*view) if isinstance(view, tuple) else view
        self.as_tuple = state["as_tuple"]
        self._cache = state["cache"]

    def _narrow(self, view: _Indices) -> "Dataset":
        return Dataset(self._store, self._names, view, as_tuple=self.as_tuple, cache=self._cache)

    def _resolve(self, index: int) -> int:
        """Number in the whole dataset of the view's sample `index`, which may be negative."""
        try:
            place = operator.index(index)
        except TypeError:
            raise UsageError(f"A sample number or a slice, got {type(index).__name__}.") from None
        if not -len(self._view) <= place < len(self._view):
            raise IndexError(f"sample {place} of a dataset of {len(self._view)}")
        return int(self._view[place])

    def _numbers(self, indices: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """`_resolve` for many. May be the array given: it must not be changed."""
        given = np.asarray(indices)
        if given.size == 0:
            return np.empty(0, dtype=np.int64)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise UsageError(
                f"Sample numbers are a 1-D list of integers, got {given.dtype}{list(given.shape)}."
            )
        given = given.astype(np.int64, copy=False)
        count = len(self._view)
        # Negative ones are the largest of all without a sign: one look finds them, too.
        if int(given.view(np.uint64).max()) >= count:
            given = np.where(given < 0, given + count, given)
            if int(given.min()) < 0 or int(given.max()) >= count:
                raise IndexError(f"a sample number is outside a dataset of {count}")
        if isinstance(self._view, range):
            if self._view.start == 0 and self._view.step == 1:
                return given
            return given * self._view.step + self._view.start
        chosen: npt.NDArray[np.int64] = self._view[given]
        return chosen

    def _read(self, sample: int) -> Any:
        shard, local = self._store.find(sample)
        try:
            values = {name: self._value(shard, local, name) for name in self._names}
            return tuple(values.values()) if self.as_tuple else values
        except CorruptDataset as error:
            raise _with_key(error, shard, local) from None

    def _value(self, shard: Shard, local: int, name: str) -> Any:
        number = self._store.numbers[name]
        field = self._store.fields[number]
        if field.kind in SCALARS:
            return shard.column(number, "value")[local].item()
        sample = shard.first + local
        where = f'{shard.where}: sample {sample}, field "{name}"'
        if field.kind in PICTURES:
            return decode_whole(self._store.rows(number, [sample]), where)
        return decode_value(field, shard.payload(number, local), where)


def _with_key(error: CorruptDataset, shard: Shard, local: int) -> CorruptDataset:
    """The error with the sample's key, where there is one to be had."""
    for number, field in enumerate(shard.fields):
        if field.name == "key" and field.kind == "text":
            try:
                key = str(shard.payload(number, local), "utf-8")
            except (CorruptDataset, ValueError):
                break
            where = f"{error.where}, key {key}"
            return CorruptDataset(
                error.what, where=where, got=error.got, expected=error.expected, do=error.do
            )
    return error


def _check_memory(store: Store) -> None:
    needed = sum(shard.bytes for shard in store.manifest.shards)
    free = psutil.virtual_memory().available
    if needed > free:
        raise UsageError(
            f'{store.folder} does not fit: cache="ram" needs {needed / 1e9:.1f} GB,'
            f" {free / 1e9:.1f} GB are free. Leave the cache to the operating system: cache=None."
        )
