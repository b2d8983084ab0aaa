"""Walk over the tensors of a batch, whatever containers it is made of."""

import array
import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import torch

# Sequences by name that hold no tensors, and what ends a walk over an object's attributes.
_FLAT = (str, bytes, bytearray, memoryview, range, array.array)
_ATOMS = (*_FLAT, int, float, complex, type(None), type, ModuleType, FunctionType)
_MOST_OBJECTS = 10_000  # an object that leads to more (a whole dataset, say) is called opaque


def map_tensors(
    batch: Any,
    fn: Callable[[torch.Tensor], Any],
    on_object: Callable[[Any], Any] | None = None,
) -> Any:
    """Return the batch with `fn(tensor)` in place of every tensor.

    Looks into mappings, lists, tuples, named tuples, other sequences and dataclass instances, and
    keeps their types, extra attributes included; a container whose type cannot be made again
    becomes a dict, a list or a tuple. What holds no tensor is the same object in the result, and
    the batch given is never changed. `on_object` gets the objects that move themselves (see
    `moves_itself`); without it they are looked into like the rest.

    >>> map_tensors({"x": torch.ones(2), "key": "a"}, lambda tensor: tensor.shape)
    {'x': torch.Size([2]), 'key': 'a'}
    """
    if isinstance(batch, torch.Tensor):
        return fn(batch)
    if isinstance(batch, _ATOMS):
        return batch
    if on_object is not None and moves_itself(batch):
        return on_object(batch)

    if isinstance(batch, Mapping):
        old = dict(batch.items())
        return _mapping(batch, old, {k: map_tensors(v, fn, on_object) for k, v in old.items()})
    if isinstance(batch, Sequence):
        items = list(batch)
        return _sequence(batch, items, [map_tensors(item, fn, on_object) for item in items])
    if dataclasses.is_dataclass(batch):
        fields = [f.name for f in dataclasses.fields(batch) if hasattr(batch, f.name)]
        old = {name: getattr(batch, name) for name in fields}
        return _dataclass(batch, old, {k: map_tensors(v, fn, on_object) for k, v in old.items()})
    return batch


def moves_itself(thing: object) -> bool:
    """Whether the object is torch's kind of batch with its own `.to(device)`.

    Such are PackedSequence, transformers' BatchEncoding, PyG's Data and custom batch classes. A
    `.to` alone is not enough (quantities with units have one): the object must hold tensors, or
    have `pin_memory` or `record_stream` as well.
    """
    if isinstance(thing, (torch.Tensor, *_ATOMS)) or not has_method(thing, "to"):
        return False
    if has_method(thing, "pin_memory") or has_method(thing, "record_stream"):
        return True
    return reachable_tensors(thing) != []


def has_method(thing: object, name: str) -> bool:
    """Whether the object's type has the method. Dicts may take any attribute for a key."""
    return callable(getattr(type(thing), name, None))


def reachable_tensors(thing: object) -> list[torch.Tensor] | None:
    """All tensors that Python's containers and attributes lead to, each once.

    None when there is too much to look at, so that nothing is known. Containers that may compute
    their items are not asked for them: only their attributes are followed.
    """
    found: list[torch.Tensor] = []
    seen: dict[int, object] = {id(thing): thing}  # holds them: an id belongs to a living object
    stack = [thing]
    while stack:
        item = stack.pop()
        if isinstance(item, torch.Tensor):
            found.append(item)
            continue
        for child in _children(item):
            if id(child) not in seen and not isinstance(child, _ATOMS):
                seen[id(child)] = child
                stack.append(child)
                if len(seen) > _MOST_OBJECTS:
                    return None
    return found


def tensor_bytes(batch: Any) -> int:
    """Bytes of all tensors of the batch; a tensor that occurs twice counts once.

    >>> x = torch.zeros(3, dtype=torch.int16)
    >>> tensor_bytes({"x": x, "again": [x]})
    6
    """
    tensors: dict[int, torch.Tensor] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        tensors[id(tensor)] = tensor
        return tensor

    def look_into(thing: object) -> object:
        tensors.update((id(tensor), tensor) for tensor in reachable_tensors(thing) or [])
        return thing

    map_tensors(batch, note, look_into)
    return sum(map(_nbytes, tensors.values()))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is sizes and strides over one storage.

    Sparse, nested, quantized tensors and the subclasses that wrap other tensors are not.
    """
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and not hasattr(tensor, "__tensor_flatten__")
    )


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one block of memory, in whatever order of the dimensions.

    >>> is_dense(torch.zeros(4, 6).t()), is_dense(torch.zeros(4, 6)[:, ::2])
    (True, False)
    """
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _nbytes(tensor: torch.Tensor) -> int:
    if tensor.layout == torch.sparse_coo:
        return tensor._indices().nbytes + tensor._values().nbytes
    return tensor.numel() * tensor.element_size()


def _mapping(data: Mapping[Any, Any], old: dict[Any, Any], new: dict[Any, Any]) -> Any:
    changed = _changed(old, new)
    if not changed:
        return data
    if type(data) is dict:
        return new
    try:
        if isinstance(data, MutableMapping):
            return _clone_with(data, old, changed)
        return type(data)(new)  # type: ignore[call-arg]
    except Exception:
        # As torch's pin_memory: the type may not support copy, item assignment or a dict.
        return new


def _sequence(data: Sequence[Any], old: list[Any], new: list[Any]) -> Any:
    changed = _changed(dict(enumerate(old)), dict(enumerate(new)))
    if not changed:
        return data
    if type(data) is list:
        return new
    try:
        if isinstance(data, tuple) and hasattr(data, "_make"):
            return data._make(new)
        if isinstance(data, MutableSequence):
            return _clone_with(data, dict(enumerate(old)), changed)
        return type(data)(new)  # type: ignore[call-arg]
    except Exception:
        return tuple(new) if isinstance(data, tuple) else new


def _dataclass(data: Any, old: dict[str, Any], new: dict[str, Any]) -> Any:
    changed = _changed(old, new)
    if not changed:
        return data
    clone = copy.copy(data)
    for name, value in changed.items():
        object.__setattr__(clone, name, value)  # frozen ones as well
    return clone


def _changed(old: dict[Any, Any], new: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in new.items() if value is not old[key]}


def _clone_with(data: Any, old: dict[Any, Any], changed: dict[Any, Any]) -> Any:
    """Copy a mutable container and set items. Raises TypeError where the copy shares its items."""
    clone = copy.copy(data)
    for key, value in changed.items():
        clone[key] = value
    if any(data[key] is value for key, value in changed.items()):
        for key in changed:
            data[key] = old[key]
        raise TypeError(f"copy.copy of {type(data).__name__} shares its items")
    return clone


def _children(item: object) -> Iterator[object]:
    if isinstance(item, dict):
        yield from list(item.values())
    elif isinstance(item, (list, tuple, AbstractSet)):
        yield from list(item)
    yield from list(getattr(item, "__dict__", {}).values())
    for kind in type(item).__mro__:
        for name, member in kind.__dict__.items():
            if isinstance(member, MemberDescriptorType) and name != "__dict__":  # a slot
                with contextlib.suppress(AttributeError):
                    yield member.__get__(item)
