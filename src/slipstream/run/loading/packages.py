"""Objects of installed packages that a dataset holds: how a change of them would show.

Where they keep their state in attributes, it is looked at like the script's own; caches among it
that change make a dataset one that changes, which costs speed and nothing else. What neither shows
nor is known never to change is refused.
"""

import array
import collections
import ctypes
import io
import mmap
import types
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from slipstream.run.loading.insides import Inside
from slipstream.run.loading.looks import MISSING, Identical, in_slots
from slipstream.run.loading.mapped import address_of
from slipstream.run.loading.streams import STREAMS, of_stream

# What samples are made from does not change by what they do.
_SETTLED = frozenset({
    "_abc", "datetime", "decimal", "enum", "fractions", "logging", "numba", "operator", "pyarrow",
    "re", "typing", "uuid", "zoneinfo",
})  # fmt: skip
_WITHOUT_STATE = (
    types.CodeType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias,
    types.UnionType, type(NotImplemented), np.ufunc,
    type(collections.namedtuple("_", "field").field),  # type: ignore[attr-defined]
)  # fmt: skip
# That has no owner who counts changes, and may be shared.
CTYPES = (ctypes.Array, ctypes.Structure, ctypes.Union, ctypes._SimpleCData, ctypes._Pointer)
MEMORY = (mmap.mmap, *CTYPES)
_BUFFERS = (bytearray, array.array, io.BytesIO)
# Written in C: a class of the script that is made of one has contents beside its attributes.
WITH_CONTENTS = (*_BUFFERS, *STREAMS)
_OF_EXTENSION_ARRAYS = ("_ndarray", "_pa_array", "_data", "_mask")
_OF_FRAMES = ("_mgr", "_flags", "_item_cache", "_cache")
_MOST_BYTES = 1 << 16  # of a buffer


def inside(thing: Any) -> Inside:
    """Of an object of an installed package, or of the standard library."""
    kind = type(thing)
    package = kind.__module__.partition(".")[0]
    name = f"{kind.__module__}.{kind.__name__}"
    for kinds, look_into in _OF_KINDS:
        if isinstance(thing, kinds):
            return look_into(thing, name)
    if package in _SETTLED or kind is object or isinstance(thing, _WITHOUT_STATE):
        return Inside()
    if known := known_package(kind):
        return _KNOWN[known](thing, name)
    if isinstance(thing, Iterator):
        return Inside(why_not=f"it holds an iterator ({name})")
    return _of_attributes(thing, name, package)


def known_package(kind: type) -> str:
    """The package whose objects, and those of classes made of its own, are known in detail."""
    packages = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((package for package in packages if package in _KNOWN), "")


def _of_buffer(thing: Any, name: str) -> Inside:
    def look() -> int:
        # A view that lives on would keep it from growing.
        with memoryview(thing.getbuffer() if isinstance(thing, io.BytesIO) else thing) as view:
            return zlib.crc32(view.cast("B") if view.ndim == 1 and view.format != "B" else view)

    nbytes = len(thing.getbuffer()) if isinstance(thing, io.BytesIO) else memoryview(thing).nbytes
    if nbytes > _MOST_BYTES:
        return Inside(why_not=f"it holds a large {name}")
    return Inside([look])


def _of_memory(thing: Any, name: str) -> Inside:
    if isinstance(thing, mmap.mmap):
        with memoryview(thing) as view:
            if view.readonly:
                return Inside(addresses=[address_of(view)])
    return Inside(why_not=f"it holds {name}, which the loop may write to")


def _of_proxy(thing: Any, _: str) -> Inside:
    return Inside([lambda: Identical(tuple(thing.values()))], [*thing.values()])


def _of_end(thing: Any, _: str) -> Inside:
    """What is done when an object is gone."""
    return Inside([lambda: thing.alive])


def _of_weak_keys(thing: Any, _: str) -> Inside:
    return Inside(parts=[vars(thing), thing.keyrefs()])


def _of_pandas(thing: Any, name: str) -> Inside:
    """The arrays that its values lie in, with a row for each row."""
    if hasattr(thing, "_mgr"):

        def arrays() -> list[Any]:
            return [block.values for block in thing._mgr.blocks]

        def look() -> Any:
            return Identical((*arrays(), *thing._mgr.axes))

        # numpy's lie the other way round.
        parts = [a.T if isinstance(a, np.ndarray) else a for a in arrays()]
        own = {name: value for name, value in vars(thing).items() if name not in _OF_FRAMES}
        return Inside([look, lambda: len(vars(thing))], [*parts, *own.values()])
    if any(base.__name__ in ("Index", "ExtensionDtype") for base in type(thing).__mro__):
        return Inside()
    held = [name for name in _OF_EXTENSION_ARRAYS if hasattr(thing, name)]
    if not held:
        return Inside(why_not=f"it holds {name}")
    return Inside(
        [lambda: Identical(tuple(getattr(thing, name) for name in held))],
        [getattr(thing, name) for name in held],
    )


def _of_hdf5(thing: Any, name: str) -> Inside:
    file = getattr(thing, "file", None)
    is_written = file is not None and file.mode != "r"
    return Inside(why_not=f"it holds {name}, open for writing" if is_written else "")


def _of_tokenizers(thing: Any, name: str) -> Inside:
    """Written in Rust. What calls change of one is how it cuts and pads."""
    if not hasattr(thing, "get_vocab_size"):
        return Inside()
    return Inside([lambda: (thing.truncation, thing.padding, thing.get_vocab_size())])


def _of_attributes(thing: Any, name: str, package: str) -> Inside:
    attributes = getattr(thing, "__dict__", None)
    slots = [
        value
        for base in type(thing).__mro__
        if "__slots__" in vars(base)
        for value in vars(base).values()
        if isinstance(value, types.MemberDescriptorType)
    ]
    found = Inside()
    if slots:
        found.looks.append(lambda: Identical(in_slots(thing, slots)))
        found.parts += [value for value in in_slots(thing, slots) if value is not MISSING]
    if isinstance(attributes, dict):
        found.parts.append(attributes)
    elif not slots and package not in ("torch", "numpy") and not _is_empty(type(thing)):
        found.why_not = f"it holds {name}, into which nobody can look"
    return found


def _is_empty(kind: type) -> bool:
    """Whether objects of the class have no room for anything."""
    return all(base is object or "__slots__" in vars(base) for base in kind.__mro__)


_OF_KINDS: tuple[tuple[Any, Callable[[Any, str], Inside]], ...] = (
    (_BUFFERS, _of_buffer),
    (STREAMS, of_stream),
    (MEMORY, _of_memory),
    (types.MappingProxyType, _of_proxy),
    (weakref.finalize, _of_end),
    (weakref.WeakKeyDictionary, _of_weak_keys),
)
_KNOWN = {"pandas": _of_pandas, "h5py": _of_hdf5, "tokenizers": _of_tokenizers}
