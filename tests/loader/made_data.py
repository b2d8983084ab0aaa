"""Datasets for the loader's tests, and how to compare batches of any structure."""

import random
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Pair = namedtuple("Pair", ["left", "right"])


class Made(Dataset[Any]):
    """`count` samples that `make` gives; `make` is a function of a module, so that it pickles."""

    def __init__(self, make: Any, count: int = 23) -> None:
        self.make = make
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not -self.count <= index < self.count:
            raise IndexError(f"sample {index} of {self.count}")
        return self.make(index)


class MadeTogether(Made):
    """The same, asked for a batch at a time."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self[index] for index in indices]


class Custom:
    """A sample that only a collate_fn understands."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


def a_number(k: int) -> Any:
    return k


def a_float(k: int) -> Any:
    return k / 3


def a_bool(k: int) -> Any:
    return k % 2 == 0


def a_text(k: int) -> Any:
    return f"größe {k}" * (k % 3)


def some_bytes(k: int) -> Any:
    return bytes(range(k))


def a_tuple(k: int) -> Any:
    return torch.full((3, 2), k), k, f"s{k}"


def a_list(k: int) -> Any:
    return [torch.full((2,), k), k / 2]


def a_dict(k: int) -> Any:
    return {"x": torch.arange(4) + k, "y": k, "name": f"s{k}"}


def nested(k: int) -> Any:
    return {
        "a": [torch.full((2,), float(k)), {"b": (k, np.float32(k)), "c": np.arange(3) * k}],
        "d": Pair(k, (f"t{k}", torch.tensor(k))),
    }


def a_namedtuple(k: int) -> Any:
    return Pair(torch.full((2, 2), k), np.full(3, k, np.int16))


def numpy_arrays(k: int) -> Any:
    return tuple(
        np.full((2, 3), k, kind)
        for kind in ("u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?", "c8", "c16")
    )


def numpy_scalars(k: int) -> Any:
    return np.float32(k), np.float64(k), np.int16(k), np.int64(k), np.bool_(k % 2), np.uint8(k)


def transposed(k: int) -> Any:
    return torch.arange(24).view(2, 3, 4).permute(2, 0, 1) + k, torch.ones(3, 1).expand(3, 5) * k


def large(k: int) -> Any:
    return torch.full((3, 64, 64), k, dtype=torch.uint8), torch.full((50_000,), float(k))


def empty_tensors(k: int) -> Any:
    return torch.empty(0, 3), torch.empty(2, 0), torch.tensor(k)


def every_dtype(k: int) -> Any:
    return {str(dtype): torch.full((3,), k % 7).to(dtype) for dtype in DTYPES}


DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
    torch.complex128, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip


def shared_tensor(k: int) -> Any:
    return torch.full((3,), k).share_memory_()


def ragged(k: int) -> Any:
    return torch.zeros(1 + k % 3)


def none(k: int) -> Any:
    return None


def sometimes_none(k: int) -> Any:
    return None if k % 2 else k


def custom(k: int) -> Any:
    return Custom(k)


def unequal_lists(k: int) -> Any:
    return [1] * (1 + k % 2)


def drawn(k: int) -> Any:
    """Random numbers of all three generators, and the sample's number."""
    return k, random.random(), np.random.rand(), torch.rand(2), torch.randint(1000, (1,))


def who(k: int) -> Any:
    info = get_worker_info()
    return (k, info.id, info.num_workers, info.seed % 1000) if info else (k, -1, -1, -1)


class Stream(IterableDataset[Any]):
    """Each worker has its own part of `count` numbers."""

    def __init__(self, count: int = 23) -> None:
        self.count = count

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for k in range(first, self.count, step):
            yield {"k": k, "r": random.random(), "t": torch.rand(2)}


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.count


def plain(batch: Any) -> Any:
    """A batch as values that `==` compares: types, dtypes, shapes and strides among them."""
    if isinstance(batch, torch.Tensor):
        strides = batch.stride() if batch.numel() else ()
        layout = (tuple(batch.shape), batch.is_contiguous(), strides)
        data = batch.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return type(batch), batch.dtype, layout, data
    if isinstance(batch, np.ndarray):
        return type(batch), batch.dtype.str, batch.shape, batch.tobytes()
    if isinstance(batch, Mapping):
        return type(batch), [(key, plain(value)) for key, value in batch.items()]
    if isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)):
        return type(batch), [plain(value) for value in batch]
    return type(batch), batch


def epoch_of(loader: Any) -> list[Any]:
    """All batches of the next epoch."""
    return [plain(batch) for batch in loader]
