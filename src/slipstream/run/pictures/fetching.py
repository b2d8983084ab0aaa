"""torch's fetcher of samples by number, for batches of late tensors."""

from typing import Any

from torch.utils.data import default_collate
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _DatasetKind

from slipstream.patches import Patches
from slipstream.run.fix import Undo
from slipstream.run.pictures.batches import LateCollate
from slipstream.run.pictures.late_tensor import postponed


class LateFetcher(_MapDatasetFetcher):
    """Does what torch's does."""

    def fetch(self, possibly_batched_index: Any) -> Any:
        """In a function of its own: samples are gone when it is over, but those that are kept."""
        fetch = super().fetch  # by name: tracebacks leave out frames that pass a call on
        with postponed():
            return fetch(possibly_batched_index)  # type: ignore[no-untyped-call]


def _collate(samples: Any) -> Any:
    return LateCollate(None).collate(samples)


def follow() -> Undo:
    """From now on, in this process and in forked workers."""
    from slipstream.run.loading.slot_queue import SlotCollating

    patches = Patches()

    def wrap(original: Any) -> Any:
        def create_fetcher(
            kind: Any, dataset: Any, auto_collation: Any, collate_fn: Any, drop_last: Any
        ) -> Any:
            if kind == _DatasetKind.Map and auto_collation:
                if collate_fn is default_collate:
                    return LateFetcher(dataset, auto_collation, _collate, drop_last)
                if type(collate_fn) is SlotCollating:
                    return LateFetcher(dataset, auto_collation, collate_fn, drop_last)
            return original(kind, dataset, auto_collation, collate_fn, drop_last)

        return staticmethod(create_fetcher)

    patches.replace(_DatasetKind, "create_fetcher", wrap)
    return patches.undo
