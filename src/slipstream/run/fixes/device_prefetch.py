"""`device-prefetch`: a batch goes to the device while that still computes the step before.

On the stream that computes, a copy waits for all that was asked for earlier. It depends on none of
it: what a loader has given lies in the processor's memory, and the device's memory for it is new.
So it is made on a stream of its own, and the stream that computes waits for it and not the other
way round. Only tensors of batches, unchanged since the loader gave them, and only where the script
has no streams of its own. Copies of the script's own that it has not waited for are waited for
where it would have waited here.
"""

import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.staging import Switch, can_be_staged, is_usual_stream, to_device, wanted
from slipstream.run.unawaited import marked, unawaited

NAME = "device-prefetch"
RULES = ("blocking-copy", "copy-on-critical-path")
_COPIES = ("Tensor.to", "Tensor.cuda")
_DEEPEST = 4


def applies(situation: Situation) -> tuple[bool, str]:
    """Where a loop on a device copies batches of torch's loaders there."""
    if not situation.on_device:
        return False, "nothing is copied to a device"
    if not situation.capture.loaders:
        return False, "batches come from no DataLoader"
    if not any(call.what in _COPIES for call in situation.capture.calls):
        return False, "the loop was not seen to copy batches to the device"
    return True, "batches are copied to the device by the stream that computes"


def apply(situation: Situation) -> Undo:
    """To every tensor of a batch."""
    prefetch = _Prefetch(situation)
    leave = unawaited.follow()
    patches = Patches()
    patches.replace(_BaseDataLoaderIter, "__next__", prefetch.wrap_next)
    patches.replace(torch.Tensor, "to", prefetch.wrap_to)
    patches.replace(torch.Tensor, "cuda", prefetch.wrap_cuda)
    patches.replace(torch.cuda.Stream, "__new__", prefetch.switch.wrap_stream)

    def undo() -> None:
        patches.undo()
        leave()

    return undo


class Delivered:
    """Tensors that loaders have given, for as long as they are there."""

    def __init__(self) -> None:
        self._versions: dict[int, tuple[Any, int]] = {}

    def note(self, batch: Any) -> None:
        """A batch, of tuples, lists and dictionaries."""
        for tensor in _tensors(batch, _DEEPEST):
            if tensor.is_inference():  # it does not say when it is written to
                continue
            key = id(tensor)
            reference = weakref.ref(tensor, partial(self._forget, key))
            self._versions[key] = reference, tensor._version

    def _forget(self, key: int, reference: Any) -> None:
        # Another tensor may have that address by now.
        if self._versions.get(key, (None,))[0] is reference:
            del self._versions[key]

    def has(self, tensor: Any) -> bool:
        """Whether this is one of them, and nothing was written to it since."""
        reference, version = self._versions.get(id(tensor), (None, 0))
        return reference is not None and reference() is tensor and tensor._version == version


def _tensors(batch: Any, depth: int) -> Iterator[torch.Tensor]:
    if type(batch) is torch.Tensor:
        yield batch
    elif depth and isinstance(batch, (tuple, list)):
        for part in batch:
            yield from _tensors(part, depth - 1)
    elif depth and isinstance(batch, dict):
        for part in batch.values():
            yield from _tensors(part, depth - 1)


class _Prefetch:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self.switch = Switch(situation, NAME)
        self._delivered = Delivered()
        self._streams: dict[int, Any] = {}

    def wrap_next(self, original: Any) -> Any:
        def next_batch(iterator: Any) -> Any:
            batch = original(iterator)
            if self.switch.is_on:
                try:
                    self._delivered.note(batch)
                except Exception as error:
                    self.switch.give_up(error)
            return batch

        return next_batch

    def wrap_to(self, original: Any) -> Any:
        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self.switch.is_on and self._delivered.has(tensor) and can_be_staged(tensor):
                asked = wanted(args, kwargs)
                sent = None if asked is None else self._send(tensor, *asked)
                if sent is not None:
                    return sent
            return original(tensor, *args, **kwargs)

        return to

    def wrap_cuda(self, original: Any) -> Any:
        def cuda(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self.switch.is_on and self._delivered.has(tensor) and can_be_staged(tensor):
                asked = wanted(args or (() if "device" in kwargs else ("cuda",)), kwargs)
                sent = None if asked is None else self._send(tensor, *asked)
                if sent is not None:
                    return sent
            return original(tensor, *args, **kwargs)

        return cuda

    def _send(
        self, tensor: torch.Tensor, device: torch.device, may_run: bool
    ) -> torch.Tensor | None:
        """None where it is better done as written."""
        try:
            if not is_usual_stream(device):
                return None
            current = torch.cuda.current_stream(device)
            # What is page-locked already is the script's to change, unless it said otherwise.
            is_scripts = tensor.is_pinned()
            if not is_scripts:
                tensor = tensor.pin_memory()
            elif not may_run:
                tensor = torch.empty_like(tensor, pin_memory=True).copy_(tensor)
            side = self._stream(current.device)
            with torch.cuda.stream(side):
                sent = to_device(tensor, device, non_blocking=True)
            current.wait_event(marked(side))
            sent.record_stream(current)
            if not may_run:
                unawaited.wait()
            elif is_scripts:
                unawaited.note(side)
        except Exception as error:
            self.switch.give_up(error)
            return None
        self._situation.note(NAME, "batches are copied on a stream of their own")
        return sent

    def _stream(self, device: torch.device) -> Any:
        index = device.index
        if index not in self._streams:
            self._streams[index] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._streams[index]


FIX = Fix(
    NAME, "E", "batches go to the device while it still computes", RULES, applies, apply
)  # fmt: skip
