"""Libraries that open files from C or Rust.

They find what the trial wrote through Python, and write into folders that it has made. Everything
else they read and write where they always do: what one writes, another may read. Where nothing but
the library itself reads its files, they are the trial's own.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial, update_wrapper
from types import ModuleType
from typing import Any

from slipstream.run.sandbox.held import replace_all
from slipstream.run.sandbox.imported import when_imported
from slipstream.run.sandbox.layers import Layers
from slipstream.run.sandbox.paths import with_path

_VOCABULARIES = ("BPE", "WordLevel", "WordPiece")


def map_libraries(layers: Layers) -> None:
    """As soon as the script imports them."""
    changes = {
        "cv2": _map_opencv,
        "h5py": _map_hdf5,
        "pyarrow": _map_arrow,
        "pyarrow.parquet": _map_parquet,
        "tokenizers": _map_tokenizers,
    }
    when_imported({name: partial(_leniently, change, layers) for name, change in changes.items()})


def _leniently(change: Callable[[Layers, Any], None], layers: Layers, module: ModuleType) -> None:
    with suppress(AttributeError, TypeError):  # of a version that nobody has seen here
        change(layers, module)


def _map_opencv(layers: Layers, cv2: Any) -> None:
    replace_all(
        {
            cv2.imread: with_path(cv2.imread, 0, "filename", partial(_seen, layers)),
            cv2.imwrite: with_path(cv2.imwrite, 0, "filename", partial(_placed, layers)),
        }
    )


def _map_hdf5(layers: Layers, h5py: Any) -> None:
    original = h5py.File.__init__

    def init(self: Any, name: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> None:
        # Drivers may make several files of a name, or none.
        has_driver = kwargs.get("driver") is not None or any(args)
        if not has_driver and isinstance(name, (str, os.PathLike)):
            name = _hdf5_path(layers, name, mode)
        original(self, name, mode, *args, **kwargs)

    h5py.File.__init__ = update_wrapper(init, original)


def _hdf5_path(layers: Layers, path: Any, mode: Any) -> Any:
    """One that is there is opened there to be changed: copies would be large, and links in it may
    be relative.
    """
    is_new = mode == "w" or (mode in ("a", "x", "w-") and layers.find(path).any is None)
    return layers.for_writing(path, keep=False) if is_new else _seen(layers, path)


def _map_arrow(layers: Layers, pyarrow: Any) -> None:
    original = pyarrow.memory_map
    replace_all({original: with_path(original, 0, "path", partial(_seen, layers))})


def _map_parquet(layers: Layers, parquet: Any) -> None:
    seen, placed = partial(_seen, layers), partial(_placed, layers)
    replace_all(
        {
            parquet.read_table: with_path(parquet.read_table, 0, "source", seen),
            parquet.write_table: with_path(parquet.write_table, 1, "where", placed),
        }
    )
    _set_method(parquet.ParquetFile, "__init__", "source", seen)
    _set_method(parquet.ParquetWriter, "__init__", "where", placed)


def _map_tokenizers(layers: Layers, tokenizers: Any) -> None:
    tokenizer, models = tokenizers.Tokenizer, tokenizers.models
    seen, train, save = partial(_seen, layers), tokenizer.train, models.Model.save

    def train_mapped(self: Any, files: Any, *args: Any, **kwargs: Any) -> None:
        train(self, [seen(file) for file in files], *args, **kwargs)

    def save_mapped(self: Any, folder: Any, *args: Any, **kwargs: Any) -> list[str]:
        place = seen(folder)
        written = save(self, place, *args, **kwargs)
        return [f"{folder}{path.removeprefix(place)}" for path in written]

    tokenizer.train = update_wrapper(train_mapped, train)
    models.Model.save = update_wrapper(save_mapped, save)
    _set_method(tokenizer, "save", "path", partial(layers.for_writing, keep=False))
    _set_static(tokenizer, "from_file", seen)
    for name in _VOCABULARIES:
        for reader in ("from_file", "read_file"):
            _set_static(getattr(models, name), reader, seen)


def _set_method(holder: Any, name: str, argument: str, change: Callable[[Any], Any]) -> None:
    original = getattr(holder, name)
    setattr(holder, name, update_wrapper(with_path(original, 1, argument, change), original))


def _set_static(holder: Any, name: str, seen: Callable[[Any], Any]) -> None:
    """Anything that it is given may be a file."""
    original = getattr(holder, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*map(seen, args), **{key: seen(value) for key, value in kwargs.items()})

    setattr(holder, name, staticmethod(update_wrapper(call, original)))


def _seen(layers: Layers, path: Any) -> Any:
    """Where it is if the trial has made it, else as it was given: an address, a name on another
    machine, a link whose own name tells the format.
    """
    if not isinstance(path, (str, os.PathLike)):
        return path
    found = layers.find(path)
    is_own = not found.is_open and found.own is not None and found.old is None
    return layers.mapped(found.path) if is_own else path


def _placed(layers: Layers, path: Any) -> Any:
    """Where to write: as it was given, but for files and into folders that the trial has made."""
    folder, name = os.path.split(os.fspath(path))
    mapped = _seen(layers, path)
    if mapped is not path:
        return mapped
    place = _seen(layers, folder or os.curdir)
    return path if place in (folder, os.curdir) else os.path.join(place, name)  # noqa: PTH118
