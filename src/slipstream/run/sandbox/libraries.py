"""Libraries that open files from C or Rust: what a trial writes with one of them is its own, and
what it wrote otherwise is found by them.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

from slipstream.run.sandbox.imported import when_imported
from slipstream.run.sandbox.layers import Layers
from slipstream.run.sandbox.paths import with_mode, with_path

_MOST_COPIED = 64 << 20  # bytes


def map_libraries(layers: Layers) -> None:
    """As soon as the script imports them."""
    changes = {
        "cv2": _map_opencv,
        "h5py": _map_hdf5,
        "pyarrow": _map_arrow,
        "pyarrow.feather": _map_feather,
        "pyarrow.parquet": _map_parquet,
        "tokenizers": _map_tokenizers,
    }
    when_imported({name: partial(_leniently, change, layers) for name, change in changes.items()})


def _leniently(change: Callable[[Layers, Any], None], layers: Layers, module: ModuleType) -> None:
    with suppress(AttributeError, TypeError):  # of a version that nobody has seen here
        change(layers, module)


def _map_opencv(layers: Layers, cv2: ModuleType) -> None:
    _reads(layers, cv2, "imread", 0, "filename")
    _writes(layers, cv2, "imwrite", 0, "filename")


def _map_hdf5(layers: Layers, h5py: ModuleType) -> None:
    original = h5py.File.__init__
    mapped = with_mode(original, 1, "name", layers)

    def init(self: Any, name: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> None:
        # Data sets are opened for more than reading, too, and never written.
        is_large = mode in ("a", "r+") and _old_bytes(layers, name) > _MOST_COPIED
        (original if is_large else mapped)(self, name, mode, *args, **kwargs)

    h5py.File.__init__ = init


def _old_bytes(layers: Layers, path: Any) -> int:
    found = layers.find(path) if isinstance(path, (str, os.PathLike)) else None
    if found is None or not found.is_only_old or found.old is None:
        return 0
    return found.old.st_size


def _map_arrow(layers: Layers, pyarrow: Any) -> None:
    known = pyarrow.OSFile

    class OSFile(known):  # type: ignore[misc, valid-type]
        __new__ = with_mode(known.__new__, 1, "path", layers)

    for place in (pyarrow, pyarrow.lib):
        _reads(layers, place, "input_stream", 0, "source")
        _writes(layers, place, "create_memory_map", 0, "path")
        _writes(layers, place, "output_stream", 0, "source")
        place.memory_map = with_mode(place.memory_map, 0, "path", layers)
        place.OSFile = OSFile


def _map_feather(layers: Layers, feather: ModuleType) -> None:
    _reads(layers, feather, "read_feather", 0, "source")
    _reads(layers, feather, "read_table", 0, "source")
    _writes(layers, feather, "write_feather", 1, "dest")


def _map_parquet(layers: Layers, parquet: Any) -> None:
    _reads(layers, parquet, "read_table", 0, "source")
    _writes(layers, parquet, "write_table", 1, "where")
    _reads(layers, parquet.ParquetFile, "__init__", 1, "source")
    _writes(layers, parquet.ParquetWriter, "__init__", 1, "where")


def _map_tokenizers(layers: Layers, tokenizers: Any) -> None:
    tokenizer, model = tokenizers.Tokenizer, tokenizers.models.Model
    read = with_path(tokenizer.from_file, 0, "path", layers.for_reading)
    train, save = tokenizer.train, model.save

    def train_mapped(self: Any, files: Any, *args: Any, **kwargs: Any) -> None:
        train(self, [layers.for_reading(file) for file in files], *args, **kwargs)

    def save_mapped(self: Any, folder: Any, *args: Any, **kwargs: Any) -> list[str]:
        written = save(self, layers.for_writing(folder, keep=True), *args, **kwargs)
        return [layers.users(path) for path in written]

    _writes(layers, tokenizer, "save", 1, "path")
    tokenizer.from_file = staticmethod(read)
    tokenizer.train, model.save = train_mapped, save_mapped


def _reads(layers: Layers, holder: Any, name: str, position: int, argument: str) -> None:
    setattr(holder, name, with_path(getattr(holder, name), position, argument, layers.for_reading))


def _writes(layers: Layers, holder: Any, name: str, position: int, argument: str) -> None:
    change = partial(layers.for_writing, keep=False)
    setattr(holder, name, with_path(getattr(holder, name), position, argument, change))
