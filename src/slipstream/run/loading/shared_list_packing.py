"""The items of a long list as bytes in one block of memory, which forked processes share.

Only plain items: numbers, text, bytes, None and paths, and tuples, lists and dictionaries of them.
What comes out is equal to what went in, of the same types and in the same order.
"""

import hashlib
import itertools
import marshal
import mmap
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

_ATOMS: frozenset[type] = frozenset({str, int, float, bool, bytes, type(None)})
_ROWS: frozenset[type] = frozenset({tuple, list})
_CHANGING: frozenset[type] = frozenset({list, dict})  # whoever has one can change it
_PATHS: frozenset[type] = frozenset({
    pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath,
})  # fmt: skip
_HOLDING = _ROWS | _CHANGING
_KEYS = _ATOMS | _PATHS
_PLAIN = _KEYS | _HOLDING
_DEPTH = 8
_CHUNK = 1 << 15
_VERSION = 2  # of the format: the last that knows nothing of objects that are met twice
_MOST_HELD = 1000
HEAD = 8  # bytes before the ends; the first is set when somebody has changed the list


class NotPlain(Exception):
    """Why a list cannot be packed."""


@dataclass(frozen=True)
class Packed:
    """`ends[k]` to `ends[k + 1]` is where item k lies in `memory`. Items at `held` are not there:
    somebody else has them, too, and might change them.
    """

    memory: mmap.mmap
    ends: Any  # a memoryview of int64
    item: Callable[[int], Any]  # gives a new object that is equal to item k
    path_kind: Any  # the class of all paths, or None
    is_changing: bool  # whether items can be changed
    held: frozenset[int]
    digest: str  # of all items, where they can be changed

    def has(self, place: int, item: Any) -> bool:
        """Whether this is still what lies there."""
        try:
            return (
                _bytes_of(item, self.path_kind)
                == (self.memory[self.ends[place] : self.ends[place + 1]])
            )
        except ValueError:  # it holds something else by now
            return False


def pack(items: list[Any]) -> Packed:
    """Raises `NotPlain`, and `OSError` where there is no memory."""
    kinds: set[type] = set()
    held: list[int] = []
    for start, part in _parts(items):
        in_part, is_any_held = _look_at(part, in_lists=2)
        kinds |= in_part
        numbers = range(start, start + len(part))
        del part
        if is_any_held:
            held += [number for number in numbers if is_held([items[number]], in_lists=2)]
        if len(held) > _MOST_HELD:
            raise NotPlain("its items are held elsewhere, too")
    paths = kinds & _PATHS
    if len(paths) > 1:
        raise NotPlain("its paths are of several classes")
    path_kind = next(iter(paths), None)
    memory, ends = _filled(items, path_kind)
    is_changing = bool(kinds & _CHANGING)
    digest = digest_of(items, path_kind) if is_changing else ""
    item = _reader(memory, ends, path_kind)
    return Packed(memory, ends, item, path_kind, is_changing, frozenset(held), digest)


def _parts(items: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    for start in range(0, len(items), _CHUNK):
        yield start, items[start : start + _CHUNK]


def _filled(items: list[Any], path_kind: Any) -> tuple[mmap.mmap, Any]:
    chunks, sizes = [], [0]
    for _, part in _parts(items):
        encoded = [_bytes_of(item, path_kind) for item in part]
        sizes += map(len, encoded)
        chunks.append(b"".join(encoded))
    start = HEAD + 8 * len(sizes)
    nbytes = start + sum(map(len, chunks))
    memory = mmap.mmap(-1, nbytes)
    np.frombuffer(memory, np.int64, len(sizes), HEAD)[:] = start + np.cumsum(sizes)
    at = start
    for chunk in chunks:
        memory[at : at + len(chunk)] = chunk
        at += len(chunk)
    # Not NumPy's: an array's items cost twice as much to look up.
    return memory, memoryview(memory)[HEAD:start].cast("q").toreadonly()


def _reader(memory: mmap.mmap, ends: Any, path_kind: Any) -> Callable[[int], Any]:
    loads = marshal.loads

    def read(place: int) -> Any:
        return loads(memory[ends[place] : ends[place + 1]])

    def read_with_paths(place: int) -> Any:
        return _with_paths(read(place), path_kind)

    return read if path_kind is None else read_with_paths


def _bytes_of(item: Any, path_kind: Any) -> bytes:
    return marshal.dumps(item if path_kind is None else _without_paths(item), _VERSION)


def digest_of(items: list[Any], path_kind: Any) -> str:
    """Of lists that were packed: another one if an item, or something inside it, was changed."""
    found = hashlib.blake2b(digest_size=16)
    try:
        for _, part in _parts(items):
            found.update(_bytes_of(part, path_kind))
    except ValueError:  # no longer plain
        return ""
    return found.hexdigest()


def _look_at(items: list[Any], *, in_lists: int) -> tuple[set[type], bool]:
    """The classes of items and of all inside them; and whether somebody else has one of these
    objects and could change it. They are known to lie in so many lists, `items` among them.
    """
    (alone,) = map(sys.getrefcount, [[]])
    found: set[type] = set()
    expected, is_held, level = alone - 1 + in_lists, False, items
    for _ in range(_DEPTH):
        types = [*map(type, level)]
        _check_plain(found, types)
        if not found & _HOLDING:
            return found, False
        changing = itertools.compress(level, map(_CHANGING.__contains__, types))
        is_held = is_held or max(map(sys.getrefcount, changing), default=0) > expected
        level = _inside(level, types, found)
        if not level:
            return found, is_held
        expected = alone + 1  # what they lie in, and the level
    raise NotPlain("its items are nested too deeply")


def _inside(level: list[Any], types: list[type], found: set[type]) -> list[Any]:
    """What these hold. Keys of dictionaries hold nothing."""
    rows = itertools.compress(level, map(_ROWS.__contains__, types))
    inner = [*itertools.chain.from_iterable(rows)]
    if dict in types:
        tables = [*itertools.compress(level, [kind is dict for kind in types])]
        _check_plain(found, map(type, itertools.chain.from_iterable(tables)), _KEYS)
        inner.extend(itertools.chain.from_iterable(map(dict.values, tables)))
    return inner


def _check_plain(found: set[type], types: Iterable[type], plain: frozenset[type] = _PLAIN) -> None:
    """Adds them to what was found."""
    kinds = set(types)
    if strange := kinds - plain:
        raise NotPlain(f"its items hold {strange.pop().__name__}")
    found |= kinds


def is_held(items: list[Any], *, in_lists: int) -> bool:
    """The latter alone."""
    return _look_at(items, in_lists=in_lists)[1]


def _without_paths(value: Any) -> Any:
    """A path becomes a set, of which there are no others."""
    kind = type(value)
    if kind in _PATHS:
        return frozenset((str(value),))
    if kind in _ROWS:
        return kind([_without_paths(part) for part in value])
    if kind is dict:
        return {_without_paths(key): _without_paths(part) for key, part in value.items()}
    return value


def _with_paths(value: Any, path_kind: Any) -> Any:
    kind = type(value)
    if kind is frozenset:
        (text,) = value
        return path_kind(text)
    if kind in _ROWS:
        return kind([_with_paths(part, path_kind) for part in value])
    if kind is dict:
        return {_with_paths(k, path_kind): _with_paths(v, path_kind) for k, v in value.items()}
    return value
