"""Batches that always lie in the same memory: what a captured CUDA graph reads."""

from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.loader.structure import map_tensors


class StaticBatch:
    """Copies every batch into the tensors of the first one, on the caller's current stream: work
    that was queued there before has read the batch before by then.

    >>> static = StaticBatch()
    >>> first = static.fill({"x": torch.ones(2), "key": "a"})
    >>> again = static.fill({"x": torch.zeros(2), "key": "b"})
    >>> again["x"] is first["x"], again["x"].tolist(), again["key"]
    (True, [0.0, 0.0], 'b')
    """

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] | None = None

    def fill(self, batch: Any) -> Any:
        """The batch, with its tensors replaced by those that stay. Raises `UsageError`."""
        if self._tensors is None:
            made: list[torch.Tensor] = []
            with torch.inference_mode(False):  # later batches may come outside of it
                map_tensors(batch, lambda tensor: made.append(torch.empty_like(tensor)))
            self._tensors = made
        places = iter(self._tensors)

        def put(tensor: torch.Tensor) -> torch.Tensor:
            place = next(places, None)
            if place is None or place.shape != tensor.shape or place.dtype != tensor.dtype:
                kept = "nothing" if place is None else f"{place.dtype}{list(place.shape)}"
                raise UsageError(
                    f"A batch with {tensor.dtype}{list(tensor.shape)} does not fit into the memory"
                    f" of the first, which has {kept} there. Static batches must all be alike:"
                    ' use drop_last=True, and on_error="substitute" in place of "skip".'
                )
            return place.copy_(tensor, non_blocking=True)

        return map_tensors(batch, put)
