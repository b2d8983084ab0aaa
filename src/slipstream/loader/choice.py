"""What a loader has chosen, with numbers and reasons."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import IterableDataset

from slipstream.cpu import usable_cores
from slipstream.loader.auto import AutoCount
from slipstream.loader.ranks import rank_and_world, ranks_here
from slipstream.loader.route import ENGINE, ROWS, TORCH, WORKERS, Route

_WAYS = {
    ENGINE: "native engine",
    ROWS: "row gather",
    WORKERS: "worker processes, shared slots",
    TORCH: "torch",
}


@dataclass
class Choice:
    """The way batches take (`path`) and why; how many workers or threads make them, how many
    batches ahead, and why; where pictures are decoded (`decode`), and why. `history` has one line
    for everything that "auto" measured or changed.
    """

    path: str
    why: str
    route: Route = field(repr=False)
    workers: int
    prefetch: int
    workers_why: str
    # Who decodes pictures, where there is a choice.
    decode: str = ""
    decode_why: str = ""
    history: list[str] = field(default_factory=list)

    @classmethod
    def first(cls, loader: Any, route: Route) -> "Choice":
        """Before anything was measured."""
        workers, prefetch = int(loader.num_workers), loader.prefetch_factor
        if route.kind in (ENGINE, ROWS):
            cores = usable_cores()
            given = workers > 0 and not isinstance(loader.num_workers, AutoCount)
            ranks = ranks_here()
            threads = min(workers, cores) if given else max(1, cores // ranks)
            shared = f", {ranks} ranks" if ranks > 1 else ""
            why = f"num_workers={workers}" if given else f"{cores} usable cores{shared}"
            return cls(_WAYS[route.kind], route.why, route, threads, prefetch or 2, why)
        auto = isinstance(loader.num_workers, AutoCount)
        why = "to begin with; measured while training" if auto else "as given"
        return cls(_WAYS[route.kind], route.why, route, workers, prefetch or 0, why)

    def describe(self, loader: Any, decode: str = "") -> str:
        """For `print(loader)`; `decode` is who decodes pictures."""
        route = self.route.kind
        unit = "threads" if route in (ENGINE, ROWS) else "workers"
        lines = [
            f"Loader({_short(loader.dataset)}, batch_size={loader.batch_size})",
            f"  path: {self.path}",
            *(f"  {line}" for line in f"why: {self.why}".splitlines()),
        ]
        if self.workers:
            lines.append(f"  {unit}: {self.workers} ({self.workers_why}), {self.prefetch} ahead")
        if decode:
            lines.append(f"  decode: {decode}")
        if loader.device is not None and torch.device(loader.device).type == "cuda":
            lines.append(f"  device: {loader.device}, copied ahead on a stream of its own")
        rank, world = rank_and_world()
        if world > 1 and loader._owns_order:
            lines.append(f"  rank {rank} of {world}: takes its share of every step")
        elif world > 1 and isinstance(loader.dataset, IterableDataset):
            lines.append(f"  rank {rank} of {world}: gets what its IterableDataset gives it")
        elif world > 1:
            lines.append(f"  rank {rank} of {world}: takes what its sampler gives")
        return "\n".join(lines)


def _short(dataset: Any) -> str:
    try:
        count = f"{len(dataset):,} samples"
    except (TypeError, NotImplementedError):
        count = "unknown length"
    source = getattr(dataset, "source", dataset)
    path = getattr(source, "path", None)
    return f"{path or type(source).__name__}, {count}"
