"""Reads the samples of a batch from a Dataset, in whichever process."""

from collections.abc import Sequence
from typing import Any

from slipstream.loader.bad_samples import BadSample, fetch_guarded
from slipstream.loader.samples import batch_under_way, begin_batch


def fetch(
    dataset: Any, indices: Sequence[Any], *, epoch: int, key: int | None, on_error: str
) -> tuple[Any, list[BadSample]]:
    """Samples, together where the dataset can give them so, and the bad ones among them.

    `key` numbers the batch where a sample can come twice in an epoch; otherwise it is None.
    """

    def read(index: Any, place: int) -> Any:
        if key is not None:
            # A bad sample before this one may have taken several places, with its neighbours.
            begin_batch(dataset, epoch, key, place)
        return dataset[index]

    with batch_under_way(dataset, epoch, key):
        if on_error != "raise":
            return fetch_guarded(read, indices, len(dataset), epoch, on_error)
        many = getattr(dataset, "__getitems__", None)
        return many(indices) if many else [dataset[index] for index in indices], []
