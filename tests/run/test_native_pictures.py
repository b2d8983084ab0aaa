"""The fix: batches of hand-written datasets stay the same, in every kind of worker."""

import importlib.util
import multiprocessing
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, _utils

from slipstream.doctor.capture import Process, StageTimes
from slipstream.run.fix import Situation
from slipstream.run.fixes.native_pictures import FIX
from slipstream.run.pictures.workers import Loop
from tests.pictures import write_flat
from tests.run.pictures_data import ByHand
from tests.run.pictures_kit import FILES, late_pictures

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@dataclass
class Recording:
    """What the fix asks of a capture."""

    processes: list[Process]
    clock: str = "host"
    calls: list[Any] = field(default_factory=list)


def situation(**pictures: list[int]) -> Situation:
    process = Process(1, loader=0, number=None, facts={"pictures": pictures})
    return Situation({}, Recording([process, Process(2, loader=0, number=0)]))


def test_applies_where_pillow_decodes_jpeg() -> None:
    assert FIX.applies(situation(JPEG=[1200, 9], PNG=[3, 9])) == (
        True, "Pillow decodes JPEG",
    )  # fmt: skip


def test_applies_where_pictures_are_opened_out_of_sight() -> None:
    here = situation()
    here.capture.processes[1].stages["read: Image.open"] = StageTimes(count=40)
    assert FIX.applies(here) == (True, "Pillow opens pictures (40 were seen)")


def test_leaves_a_script_with_png_alone() -> None:
    assert FIX.applies(situation(PNG=[7, 9])) == (False, "Pillow decodes no JPEG, only PNG")
    assert FIX.applies(situation()) == (False, "Pillow decodes no pictures")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_flat(tmp_path / "pictures", 21)
    for name in ("gray", "progressive", "cmyk", "4:2:2"):
        (folder / f"{name.replace(':', '')}.jpg").write_bytes(FILES[name])
    return folder


def batches(folder: Path, workers: int, context: str | None) -> tuple[list[torch.Tensor], int, int]:
    """The pixels, and how many pictures came of workers and of the engine."""
    torch.manual_seed(3)
    loader = DataLoader(
        ByHand(folder), batch_size=8, shuffle=True, num_workers=workers,
        multiprocessing_context=context if workers else None,
    )  # fmt: skip
    epoch = list(loader)
    in_workers = sum(int(batch[1].sum()) for batch in epoch)
    return [batch[0] for batch in epoch], in_workers, sum(int(batch[2].sum()) for batch in epoch)


@pytest.mark.parametrize(
    ("workers", "context"),
    [
        (0, None),
        (2, "fork"),
        pytest.param(2, "spawn", marks=pytest.mark.slow),
        pytest.param(2, "forkserver", marks=pytest.mark.slow),
    ],
)
def test_same_batches(folder: Path, workers: int, context: str | None) -> None:
    if context is not None and context not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this machine does not {context}")
    want, _, by_engine = batches(folder, workers, context)
    assert by_engine == 0
    here = situation(JPEG=[25, 25])
    undo = FIX.apply(here)
    try:
        found, in_workers, by_engine = batches(folder, workers, context)
    finally:
        undo()
    assert [batch.numpy().tobytes() for batch in found] == [b.numpy().tobytes() for b in want]
    assert in_workers == (25 if workers else 0)
    assert by_engine == 23  # all but the progressive one and CMYK
    noted = here.notes.get(FIX.name)
    if context in (None, "fork"):
        assert noted == ["23 pictures by the engine, 2 left to Pillow"]
    assert Image.open.__module__ == "PIL.Image" and not hasattr(Image.open, "_of_pillow")


def test_workers_that_are_running_leave_with_the_fix(tmp_path: Path) -> None:
    folder = write_flat(tmp_path / "pictures", 24)
    loader: Any = DataLoader(
        ByHand(folder), batch_size=1, num_workers=2, multiprocessing_context="fork",
        persistent_workers=True,
    )  # fmt: skip
    undo = FIX.apply(situation(JPEG=[25, 25]))
    try:
        epoch = iter(loader)
        first = next(epoch)
    finally:
        undo()
    assert int(first[2].sum()) == 1
    rest = [int(batch[2].sum()) for batch in epoch]
    assert not any(rest[-8:])  # those ahead were made before
    assert not any(int(batch[2].sum()) for batch in loader)


def test_the_example(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("slow_train", "examples/slow_train.py")
    assert spec is not None and spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.PICTURES, example.SIDE = 3, 160
    example.make_pictures(tmp_path)
    photos = example.Photos(tmp_path)
    random.seed(1)
    want = [photos[k][0] for k in range(3)]
    random.seed(1)
    with late_pictures():
        found = [photos[k][0] for k in range(3)]
    assert all(torch.equal(one, other) for one, other in zip(found, want, strict=True))


def test_workers_go_on_with_what_ran_before() -> None:
    """Another's loop stays, and torch's own is found by its name."""
    original = _utils.worker._worker_loop
    _utils.worker._worker_loop = print
    try:
        with late_pictures():
            loop: Any = _utils.worker._worker_loop
            assert isinstance(loop, Loop) and pickle.loads(pickle.dumps(loop)).earlier is print
        assert _utils.worker._worker_loop is print
    finally:
        _utils.worker._worker_loop = original
    with late_pictures():
        loop = _utils.worker._worker_loop
        assert loop.earlier is original
        data = pickle.dumps(loop)
    assert pickle.loads(data).earlier is original


class Mixed:
    """Samples of more than one type."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.rand(2).double() if index % 2 else torch.rand(2)


def test_samples_of_several_types_are_stacked_as_torch_stacks_them() -> None:
    torch.manual_seed(0)
    expected = next(iter(DataLoader(Mixed(), batch_size=4)))  # type: ignore[arg-type]
    undo = FIX.apply(situation(JPEG=[1, 9]))
    try:
        torch.manual_seed(0)
        found = next(iter(DataLoader(Mixed(), batch_size=4)))  # type: ignore[arg-type]
    finally:
        undo()
    assert found.dtype is expected.dtype is torch.float64
    assert torch.equal(found, expected)
