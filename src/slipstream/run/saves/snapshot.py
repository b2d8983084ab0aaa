"""A copy of a checkpoint that later steps do not change, and that is pickled to the same bytes."""

import argparse
from collections import OrderedDict
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import UntypedStorage

_LEAVES = (
    type(None), bool, int, float, complex, str, bytes,
    torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_DEVICES = ("cpu", "cuda")


class NotPlain(Exception):
    """It holds something of which a copy might not be the same."""


class OnDevice(UntypedStorage):
    """`torch.save` copies a storage to the host with no other thread running meanwhile, not even
    while the device is still busy with other things; a tensor's copy lets them run.
    """

    def cpu(self) -> UntypedStorage:
        """What `torch.save` asks for."""
        mine = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        # Whatever the default device is.
        host = torch.empty(self.nbytes(), dtype=torch.uint8, device="cpu")
        return host.copy_(mine).untyped_storage()


class Buffers:
    """Memory for copies. That of the host is kept from one save to the next: fresh pages cost more
    than the copy. That of devices goes back to torch, which keeps it, and has it at hand where the
    script needs it.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[torch.device, int], list[UntypedStorage]] = {}
        self.used: list[UntypedStorage] = []

    def take(self, like: UntypedStorage) -> UntypedStorage:
        """One of this size on this device."""
        free = self._free.get((like.device, like.nbytes()))
        kind = UntypedStorage if like.device.type == "cpu" else OnDevice
        taken = free.pop() if free else kind(like.nbytes(), device=like.device)  # type: ignore[no-untyped-call]
        self.used.append(taken)
        return taken

    def give_back(self) -> None:
        """What was taken is free; what was not needed goes."""
        self._free = {}
        for storage in self.used:
            if storage.device.type != "cpu":
                continue
            self._free.setdefault((storage.device, storage.nbytes()), []).append(storage)
        self.used = []

    def clear(self) -> None:
        """Let go of all."""
        self._free, self.used = {}, []


def tensor_bytes(thing: Any) -> dict[torch.device, int]:
    """What the storages of its tensors take. Raises `NotPlain` as `snapshot` does."""
    found: dict[int, UntypedStorage] = {}
    _collect(thing, found, set())
    sizes: dict[torch.device, int] = {}
    for storage in found.values():
        sizes[storage.device] = sizes.get(storage.device, 0) + storage.nbytes()
    return sizes


def snapshot(thing: Any, buffers: Buffers) -> Any:
    """Copies share where the originals do: pickle writes a thing once. Raises `NotPlain`."""
    return _Copier(buffers).copy(thing)


def _collect(thing: Any, found: dict[int, UntypedStorage], seen: set[int]) -> None:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    kind = type(thing)
    if kind in _TENSORS:
        _check_tensor(thing)
        storage = thing.untyped_storage()
        found[storage._cdata] = storage
    elif kind in (dict, OrderedDict):
        for key, value in thing.items():
            _collect(key, found, seen)
            _collect(value, found, seen)
    elif kind in (list, tuple):
        for value in thing:
            _collect(value, found, seen)
    if kind in (OrderedDict, argparse.Namespace):
        _collect(vars(thing), found, seen)


class _Copier:
    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._done: dict[int, Any] = {}
        self._under_way: set[int] = set()
        self._storages: dict[int, UntypedStorage] = {}

    def copy(self, thing: Any) -> Any:
        kind = type(thing)
        if kind in _LEAVES or isinstance(thing, (type, np.generic, PurePath)):
            return thing
        if id(thing) in self._done:
            return self._done[id(thing)]
        if id(thing) in self._under_way:
            raise NotPlain("a container that holds itself")
        self._under_way.add(id(thing))
        made = self._copy(thing, kind)
        self._under_way.remove(id(thing))
        self._done[id(thing)] = made
        return made

    def _copy(self, thing: Any, kind: type) -> Any:
        if kind in _TENSORS:
            return self._tensor(thing)
        if kind is dict:
            return {self.copy(key): self.copy(value) for key, value in thing.items()}
        if kind is OrderedDict:
            made = OrderedDict((self.copy(key), self.copy(value)) for key, value in thing.items())
            vars(made).update(self.copy(vars(thing)))  # a state_dict has its _metadata there
            return made
        if kind is argparse.Namespace:
            return argparse.Namespace(**self.copy(vars(thing)))
        if kind in (list, tuple):
            return kind(self.copy(value) for value in thing)
        if kind is np.ndarray and not thing.dtype.hasobject:
            return thing.copy(order="F" if thing.flags.fnc else "C")
        raise NotPlain(kind.__name__)

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        _check_tensor(tensor)
        copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        copy.set_(
            self._storage(tensor.untyped_storage()),
            tensor.storage_offset(),
            tensor.size(),
            tensor.stride(),
        )
        if type(tensor) is torch.nn.Parameter:
            return torch.nn.Parameter(copy, tensor.requires_grad)
        return copy.requires_grad_(tensor.requires_grad)

    def _storage(self, storage: UntypedStorage) -> UntypedStorage:
        known = self._storages.get(storage._cdata)
        if known is None:
            known = self._buffers.take(storage)
            if storage.nbytes():
                known.copy_(storage)
            self._storages[storage._cdata] = known
        return known


def _check_tensor(tensor: torch.Tensor) -> None:
    is_plain = (
        tensor.layout is torch.strided
        and tensor.device.type in _DEVICES
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_nested)
        and not vars(tensor)
        and not tensor._backward_hooks
    )
    if not is_plain:
        raise NotPlain("a tensor of a special kind")
