"""Which way a loader's batches take, and why."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, Subset, TensorDataset, default_collate

from slipstream.augment.lowering import Lowered, lower
from slipstream.augment.ops import Op
from slipstream.errors import UsageError
from slipstream.loader.readers import FileReader, FolderReader, PackedReader, Reader
from slipstream.loader.samples import TransformedDataset
from slipstream.store.dataset import Dataset
from slipstream.store.folder import FolderDataset

ENGINE, ROWS, WORKERS, TORCH = "engine", "rows", "workers", "torch"


@dataclass(frozen=True, slots=True)
class Route:
    """The way, in one word, and the reason, in one line."""

    kind: str
    why: str
    reader: Reader | None = None
    lowered: Lowered | None = None
    # What workers read in place of the loader's own dataset, which has the same samples.
    dataset: Any = None


def with_transform(dataset: Any, transform: object, seed: int) -> Any:
    """The dataset with its pictures transformed. Raises `UsageError` where it holds none that we
    know how to read.
    """
    if isinstance(dataset, (str, Path)):
        raise UsageError(
            f"A Loader takes a dataset, got the path {str(dataset)!r}. Open it first:"
            f" slipstream.open_dataset({str(dataset)!r})."
        )
    if transform is None:
        return dataset
    if isinstance(dataset, TransformedDataset):
        dataset = dataset.source
    base, indices = without_subsets(dataset)
    reader = _reader_of(base, indices)
    if reader is None or isinstance(reader, FileReader):
        raise UsageError(
            "transform is for datasets of open_dataset, which hold pictures as they are stored."
            f" This {type(dataset).__name__} makes its own samples: give the transform to it."
        )
    if not reader.pictures:
        raise UsageError(f"transform is for pictures, and {dataset!r} holds none.")
    lowered = lower(transform, exact=False)
    _warn_of_python(lowered)
    return TransformedDataset(dataset, reader, lowered, seed=seed)


def _warn_of_python(lowered: Lowered) -> None:
    """Whoever writes transforms of their own knows that these run in Python. Of ours nobody would
    expect it.
    """
    if not lowered.rest or not all(isinstance(transform, Op) for transform in lowered.rest):
        return
    warnings.warn(
        f"{type(lowered.rest[0]).__name__} runs in Python, sample by sample, and so does all behind"
        f" it: {lowered.why}. Write crops and a resize first, then flips, then all else; or give"
        " num_workers, so that worker processes run them.",
        stacklevel=4,
    )


def choose(loader: Any) -> Route:
    """The fastest way that gives what torch's DataLoader would give."""
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset):
        return Route(TORCH, "an IterableDataset makes its own order; torch runs it")
    if not loader._auto_collation:
        return _python_route(loader, "batch_size=None: samples are not batched")
    if loader.collate_fn is not default_collate:
        return _python_route(loader, "the samples go to your collate_fn")
    found = _native_route(loader)
    if isinstance(found, TransformedDataset):
        return _python_route(loader, found.lowered.describe(), found)
    return found if isinstance(found, Route) else _python_route(loader, found)


def _native_route(loader: Any) -> Route | TransformedDataset | str:
    """The engine's way; a dataset that goes a part of it; or why there is none."""
    dataset = loader.dataset
    if isinstance(dataset, TransformedDataset):
        if type(dataset.source) is Subset:
            # Its samples may be others than when the loader was made.
            reader = _reader_of(*without_subsets(dataset.source))
            assert reader is not None
            dataset.read_from(reader)
        return _engine_route(dataset)
    base, indices = without_subsets(dataset)
    reader = _reader_of(base, indices)
    if isinstance(reader, FileReader):
        lowered = lower(base.transform, exact=True)
        if lowered.rest and not lowered.lowered:
            return lowered.describe()
        return _engine_route(TransformedDataset(dataset, reader, lowered, seed=loader.seed))
    if reader is not None:
        return Route(ENGINE, "fields are gathered natively", reader, Lowered())
    runs_init = loader.worker_init_fn is not None and loader.num_workers > 0
    if type(base) is TensorDataset and not runs_init and all(_is_plain(t) for t in base.tensors):
        return Route(ROWS, "rows of a TensorDataset are gathered in one step")
    return f"{type(dataset).__name__} is read by Python"


def _engine_route(dataset: TransformedDataset) -> Route | TransformedDataset:
    if dataset.lowered.rest:
        return dataset
    return Route(ENGINE, dataset.lowered.describe(), dataset.reader, dataset.lowered)


def _python_route(loader: Any, reason: str, dataset: Any = None) -> Route:
    from torch.utils.data import MapDataPipe

    if loader.num_workers == 0:
        return Route(TORCH, f"{reason}; in this process, as num_workers is 0")
    if isinstance(loader.dataset, MapDataPipe):
        return Route(TORCH, f"{reason}; a DataPipe, which torch sets up")
    return Route(WORKERS, f"{reason}; worker processes write into shared slots", dataset=dataset)


def without_subsets(dataset: Any) -> tuple[Any, Any]:
    """What a chain of torch Subsets stands on, and its samples' numbers there, or None for all."""
    indices: Any = None
    while type(dataset) is Subset:
        own = dataset.indices
        indices = own if indices is None else [own[i] for i in indices]
        dataset = dataset.dataset
    return dataset, indices


def _reader_of(dataset: Any, indices: Sequence[int] | None) -> Reader | None:
    if type(dataset) is Dataset:
        chosen = dataset if indices is None else dataset.subset(np.asarray(indices))
        return PackedReader(chosen)
    if type(dataset) is FolderDataset:
        return FolderReader(dataset if indices is None else dataset.subset(indices))
    if _is_image_folder(dataset):
        samples = dataset.samples if indices is None else [dataset.samples[i] for i in indices]
        return FileReader(samples)
    return None


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
    )


_FOLDER_MODULE = "torchvision.datasets.folder"


def _is_image_folder(dataset: Any) -> bool:
    """Whether this is torchvision's ImageFolder, or reads its samples with the very same code."""
    kind = type(dataset)
    reads = getattr(kind, "__getitem__", None)
    if getattr(reads, "__module__", "") != _FOLDER_MODULE or hasattr(kind, "__getitems__"):
        return False
    if getattr(reads, "__qualname__", "") != "DatasetFolder.__getitem__":
        return False
    loader: Any = getattr(dataset, "loader", None)
    if getattr(loader, "__module__", "") != _FOLDER_MODULE:
        return False
    torchvision: Any = sys.modules.get("torchvision")
    backend = getattr(torchvision, "get_image_backend", lambda: "PIL")()
    is_pillow = loader.__name__ == "pil_loader" or (
        loader.__name__ == "default_loader" and backend == "PIL"
    )
    return is_pillow and dataset.target_transform is None
