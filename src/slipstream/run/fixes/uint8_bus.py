"""`uint8-bus`: pictures go to the device as bytes, and become normalized floats there.

Where `native-pictures` has workers decode whole batches that end in ToTensor or Normalize, the
batch stays bytes until the script sends it to a device: a quarter of the memory to write, to hand
over and to copy. Each byte's value is looked up there in the table that the engine has it from.
"""

import mmap
from collections.abc import Sequence
from typing import Any

from torch.utils.data import get_worker_info

from slipstream.patches import Patches
from slipstream.run import seen
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.fixes import native_pictures

NAME = "uint8-bus"
_LAST = ("ToTensor", "Normalize")
_MOST_USED = 3  # batches in a row, before they are on a device: then floats are made by workers


def applies(situation: Situation) -> tuple[bool, str]:
    """Where workers make batches of pictures for a device."""
    if not situation.on_device:
        return False, "nothing is copied to a device: on a processor there is no bus"
    decodes, why = native_pictures.applies(situation)
    if not decodes:
        return False, why
    for loader in situation.capture.loaders:
        is_usual = loader.workers and loader.collate == "default_collate"
        if is_usual and loader.transforms[-1:] and loader.transforms[-1] in _LAST:
            mib = (loader.batch_bytes or 0) / 2**20
            return True, f"batches of {loader.dataset} have {mib:.0f} MiB as floats"
    return False, "no loader's workers make batches of pictures that end in ToTensor or Normalize"


def apply(situation: Situation) -> Undo:
    """To batches of workers that torch's own collate makes."""
    from slipstream.run.pictures import late_batch
    from slipstream.run.pictures.batches import LateCollate

    bus = _Bus(situation)
    patches = Patches()
    patches.replace(LateCollate, "_stack", bus.wrap_stack)
    patches.replace(seen, "_add_tensor", _wrap_add)
    late_batch.tell(bus)

    def undo() -> None:
        patches.undo()
        bus.turn_off()
        late_batch.tell(None)

    return undo


def _wrap_add(original: Any) -> Any:
    """What is looked at to compare runs is no use of it."""
    from slipstream.run.pictures.late_batch import is_late_batch, values_of

    def add_tensor(found: Any, tensor: Any, above: Any) -> None:
        original(found, values_of(tensor) if is_late_batch(tensor) else tensor, above)

    return add_tensor


class _Bus:
    """What becomes of batches in the loop's process; workers see whether it is on."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._used = 0
        self._is_off = mmap.mmap(-1, 1)

    def wrap_stack(self, original: Any) -> Any:
        """Of `LateCollate._stack`."""
        from slipstream.run.pictures.pixel_batch import stack_bytes

        def stack(collate: Any, tensors: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
            error = None
            if not self._is_off[0] and get_worker_info() is not None:
                try:
                    if (batch := stack_bytes(collate, tensors)) is not None:
                        return batch
                except Exception as failure:
                    error = failure
            batch = original(collate, tensors, collate_fn_map=collate_fn_map)
            if error is not None:  # and not the picture's, which would have come again
                self.failed(error)
            return batch

        return stack

    def turn_off(self) -> None:
        """For all workers, from their next batch on."""
        self._is_off[0] = 1

    def sent(self) -> None:
        """See `Listener`."""
        self._used = 0
        self._situation.note(NAME, "batches go to the device as bytes")

    def used(self) -> None:
        """See `Listener`."""
        self._used += 1
        if self._used >= _MOST_USED and not self._is_off[0]:
            self.turn_off()
            self._situation.note(
                NAME, "off, as the loop uses batches before they are on the device"
            )

    def failed(self, error: Exception) -> None:
        """See `Listener`."""
        self.turn_off()
        self._situation.give_up(NAME, error)


FIX = Fix(
    NAME, "N", "pictures go to the device as bytes and become floats there", (), applies, apply
)  # fmt: skip
