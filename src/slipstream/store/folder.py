"""A folder of pictures as a dataset, without packing: same fields, same values."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch.utils.data
from PIL import Image

from slipstream.errors import CorruptDataset, UsageError
from slipstream.store.manifest import MANIFEST_NAME
from slipstream.store.schema import Field


class FolderDataset(torch.utils.data.Dataset[Any]):
    """Pictures of a folder, flat or one folder per class. Made by `open_dataset`.

    Samples have the fields that `pack` would give them: `image`, `label` where there are class
    folders, `key`. Files are read when they are asked for.
    """

    def __init__(
        self, path: Path, paths: Sequence[str], values: Mapping[str, Sequence[Any]],
        names: tuple[str, ...], classes: tuple[str, ...] | None, *, as_tuple: bool,
    ) -> None:  # fmt: skip
        self.path = path
        self.paths = paths
        self.classes = classes
        self.as_tuple = as_tuple
        self.names = names
        self.values = values

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that samples hold, in the order of their dict."""
        kinds = {"image": "image", "label": "int", "key": "text"}
        return tuple(Field(name, kinds[name]) for name in self.names)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> "FolderDataset": ...
    def __getitem__(self, index: int | slice) -> Any:
        """One sample, or a view of several. Raises `CorruptDataset` where there is no picture."""
        if isinstance(index, slice):
            return self.subset(range(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of a dataset of {len(self)}")
        values = {name: self._value(name, index) for name in self.names}
        return tuple(values.values()) if self.as_tuple else values

    def subset(self, indices: Sequence[int]) -> "FolderDataset":
        """A view of the samples with these numbers, in this order; numbers may repeat."""
        chosen = [int(i) for i in indices]
        values = {name: [column[i] for i in chosen] for name, column in self.values.items()}
        return FolderDataset(
            self.path, [self.paths[i] for i in chosen], values, self.names, self.classes,
            as_tuple=self.as_tuple,
        )  # fmt: skip

    def _value(self, name: str, index: int) -> Any:
        if name != "image":
            return self.values[name][index]
        path = self.paths[index]
        try:
            with Image.open(io.BytesIO(Path(path).read_bytes())) as picture:
                return np.array(picture.convert("RGB"))
        except Exception as error:  # Pillow's plugins raise whatever broken bytes lead them to
            raise CorruptDataset(
                f"picture cannot be read: {type(error).__name__}: {error}", where=path
            ) from None

    def __repr__(self) -> str:
        """Path, size and fields."""
        names = ", ".join(self.names)
        return f"FolderDataset({str(self.path)!r}, {len(self)} samples, {names})"


def holds_pictures(folder: Path) -> bool:
    """Whether a picture lies in the folder, or in a folder in it."""
    from slipstream.pack.sources.folder import PICTURE_SUFFIXES

    def is_picture(name: str) -> bool:
        return not name.startswith(".") and name.lower().endswith(endings)

    endings = tuple(PICTURE_SUFFIXES)
    if not folder.is_dir() or (folder / MANIFEST_NAME).exists():
        return False
    return any(is_picture(name) for _, _, names in os.walk(folder) for name in names)


def open_picture_folder(
    path: Path, fields: Sequence[str] | None, *, as_tuple: bool
) -> FolderDataset:
    """The pictures of a folder. Raises `UsageError` where there are none."""
    from slipstream.pack.sources.folder import open_folder

    found = open_folder(path)
    values: dict[str, Sequence[Any]] = {}
    if found.classes is not None:
        values["label"] = [entry.values[0] for entry in found.entries]
    values["key"] = [entry.key for entry in found.entries]
    known = ("image", *values)
    for name in fields or ():
        if name not in known:
            raise UsageError(f'{path} has no field "{name}". Its fields: {", ".join(known)}.')
    names = known if fields is None else tuple(fields)
    paths = [entry.path for entry in found.entries]
    return FolderDataset(path, paths, values, names, found.classes, as_tuple=as_tuple)
