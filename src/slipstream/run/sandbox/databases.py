"""SQLite opens files by itself: databases are the trial's own copies."""

import os
from typing import Any
from urllib.parse import quote, unquote

from slipstream.run.sandbox import plain
from slipstream.run.sandbox.layers import Layers

_PLACE_OF_URI = 6  # among the arguments behind the database
_BESIDE = ("-wal", "-journal")  # what is not in the database yet


def wrapped(layers: Layers) -> dict[Any, Any]:
    """`sqlite3.connect` with its path mapped."""
    try:
        import sqlite3
    except ImportError:  # a Python without
        return {}
    original = sqlite3.connect

    def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
        is_uri = kwargs.get("uri", len(args) > _PLACE_OF_URI and args[_PLACE_OF_URI])
        return original(_mapped(layers, database, is_uri=bool(is_uri)), *args, **kwargs)

    return {original: connect}


def _mapped(layers: Layers, database: Any, *, is_uri: bool) -> Any:
    if not isinstance(database, (str, bytes, os.PathLike)):
        return database
    name = os.fsdecode(database)
    if is_uri and name.startswith("file:"):
        return _mapped_uri(layers, name)
    if name in ("", ":memory:"):
        return database
    return _own(layers, name)


def _mapped_uri(layers: Layers, name: str) -> str:
    path, mark, options = name.removeprefix("file:").partition("?")
    if path.startswith("//"):
        path = f"/{path[2:].partition('/')[2]}"
    if not path or path == ":memory:" or "mode=memory" in options:
        return name
    place = unquote(path)
    is_read = "mode=ro" in options or "immutable=1" in options
    found = layers.for_reading(place) if is_read else _own(layers, place)
    return f"file:{quote(found)}{mark}{options}"


def _own(layers: Layers, path: str) -> str:
    for ending in _BESIDE:
        if plain.look(layers.for_reading(path + ending)) is not None:
            layers.for_writing(path + ending, keep=True)
    return layers.for_writing(path, keep=True)
