"""Any batch survives the way through a slot: values, kinds, strides, aliases."""

import gc
import pickle
import weakref
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from slipstream.errors import InternalError
from slipstream.loader.memory import Bytes, lend, tensor_at
from slipstream.loader.parcel import place, unwrap, wrap

Pair = namedtuple("Pair", ["left", "right"])


class Subclass(torch.Tensor):
    pass


def aligned_slot(nbytes: int) -> Bytes:
    raw = np.zeros(nbytes + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def through(batch: Any) -> Any:
    """The batch as the loader's process gets it."""
    parcel = wrap(batch)
    slot = aligned_slot(parcel.nbytes) if parcel.nbytes else None
    return unwrap(parcel.skeleton, place(parcel.leaves, slot), slot)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and type(one) is type(other) and bool((one == other).all())
    if isinstance(one, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and bool((one == other).all())
    if isinstance(one, dict):
        return type(one) is type(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        alike = type(one) is type(other) and len(one) == len(other)
        return alike and all(map(same, one, other))
    return bool(one == other)


BASE = torch.arange(24).reshape(2, 3, 4)
ARRAY = np.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    "batch",
    [
        BASE,
        None,
        "text",
        b"bytes",
        5,
        [],
        {},
        [None, "a", {"b": (BASE, [ARRAY])}],
        Pair(BASE, {"x": ARRAY}),
        OrderedDict(z=BASE, a=1),
        torch.tensor(3.5),
        torch.empty(0),
        torch.empty(3, 0, 2),
        [torch.empty(0), np.empty((0, 3)), BASE, torch.empty(2, 0)],
        np.array(7, dtype=np.int16),
        np.empty((0, 3), dtype="U4"),
        np.array(["ab", "c"]),
        np.array(["2026-11-15"], dtype="M8[D]"),
        np.zeros(3, dtype=[("x", "<i4"), ("y", "<f8")]),
        np.arange(3, dtype=">i4"),
        np.array([{"an": "object"}], dtype=object),
        np.float32(2.5),
        ARRAY.T,
        ARRAY[::2, 1:],
        np.asfortranarray(ARRAY),
        BASE.transpose(0, 2),
        BASE[:, ::2],
        torch.ones(3, 1).expand(3, 5),
        torch.arange(120).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.eye(3).to_sparse(),
        torch.ones(2, 2).as_subclass(Subclass),  # type: ignore[arg-type]
        torch.view_as_complex(torch.ones(4, 2)).conj(),
        BASE.clone().share_memory_(),
        [BASE, BASE.clone().share_memory_(), torch.eye(2).to_sparse()],
    ],
    ids=lambda batch: str(type(batch).__name__),
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch's own pickling
def test_structures_and_layouts(batch: Any) -> None:
    came = through(batch)
    if isinstance(batch, torch.Tensor) and batch.is_sparse:
        came, batch = came.to_dense(), batch.to_dense()
    if isinstance(batch, list) and batch and getattr(batch[-1], "is_sparse", False):
        came[-1], batch = came[-1].to_dense(), [*batch[:-1], batch[-1].to_dense()]
    assert same(batch, came)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
        torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
        torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
    ],
    ids=str,
)  # fmt: skip
def test_every_dtype(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1], [1, 0]]).to(dtype)
    for batch in (tensor, tensor.t(), tensor[0, 1]):
        parcel = wrap(batch)
        assert len(parcel.leaves) == 1, "it can lie in a slot"
        came = through(batch)
        assert came.dtype == dtype
        assert came.tolist() == batch.tolist()
        assert came.stride() == batch.stride()


def test_strides_stay() -> None:
    image = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert through(image).is_contiguous(memory_format=torch.channels_last)
    assert through(torch.ones(3, 1).expand(3, 5)).stride() == (1, 0)


def test_what_asks_for_gradients_still_does() -> None:
    leaf = torch.ones(3, requires_grad=True)
    assert through(leaf).requires_grad
    assert type(through(torch.nn.Parameter(torch.ones(2)))) is torch.nn.Parameter


def test_one_tensor_twice_is_one_tensor() -> None:
    a, b = through([BASE, BASE])
    assert a is b
    array, same_array = through([ARRAY, ARRAY])
    assert array is same_array


def test_a_view_takes_its_own_bytes_only() -> None:
    large = torch.zeros(1_000_000)
    assert wrap(large[5:8]).nbytes <= 64


def test_what_lies_in_the_slot_already_is_not_copied() -> None:
    slot = aligned_slot(1024)
    inside = tensor_at(slot, 0, torch.int64, (16,))
    inside.copy_(torch.arange(16))
    outside = torch.arange(8) + 100
    parcel = wrap({"in": inside, "out": outside})
    places = place(parcel.leaves, slot)
    assert [offset for offset, *_ in places] == [0, 128]
    came = unwrap(parcel.skeleton, places, slot)
    assert came["in"].data_ptr() == inside.data_ptr()
    assert torch.equal(came["out"], outside)


def test_gaps_in_the_slot_do_not_make_it_overflow() -> None:
    """Half of the slot is taken by what a collate function has thrown away."""
    slot = aligned_slot(256)
    inside = tensor_at(slot, 128, torch.int64, (16,))
    inside.copy_(torch.arange(16))
    parcel = wrap([inside, torch.arange(16) + 100])
    assert parcel.nbytes == 256
    came = unwrap(parcel.skeleton, place(parcel.leaves, slot), slot)
    assert torch.equal(came[0], torch.arange(16))
    assert torch.equal(came[1], torch.arange(16) + 100)


def test_a_batch_lets_go_of_its_slot_without_the_collector() -> None:
    parcel = wrap({"x": BASE, "y": [ARRAY]})
    slot = aligned_slot(parcel.nbytes)
    places = place(parcel.leaves, slot)
    returned: list[int] = []
    gc.disable()
    try:
        batch = unwrap(parcel.skeleton, places, lend(slot, returned.append, 1))
        part = batch["y"][0][1:]
        del batch
        assert not returned
        del part
        assert returned == [1]
    finally:
        gc.enable()


def test_a_wrapped_batch_is_not_kept_by_its_parcel_maker() -> None:
    tensor = torch.zeros(3)
    alive = weakref.ref(tensor)
    gc.disable()
    try:
        wrap([tensor])
        del tensor
        assert alive() is None
    finally:
        gc.enable()


def test_a_skeleton_alone_is_refused() -> None:
    with pytest.raises(InternalError, match="without its slot"):
        pickle.loads(wrap(torch.zeros(3)).skeleton)


def test_what_cannot_be_pickled_raises() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        wrap([BASE, lambda: None])


def test_strides_of_sizes_of_one_and_views_of_one_tensor_stay() -> None:
    gray = torch.empty(8, 1, 4, 4, memory_format=torch.channels_last)
    assert through(gray).stride() == gray.stride() == (16, 1, 4, 1)
    whole = torch.arange(24.0).reshape(4, 6)
    one, other = through((whole, whole.view(2, 12)))
    one.zero_()
    assert not other.any()
