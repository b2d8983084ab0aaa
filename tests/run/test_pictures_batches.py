"""Tensors that are made a batch at a time: the same batches, and plain tensors for all others."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from slipstream.run.pictures import batches as batches_module
from slipstream.run.pictures.late_tensor import is_late, late_tensor, postponed
from slipstream.run.pictures.source import Source
from slipstream.run.pictures.window import Window
from tests.augment.standins import v1
from tests.pictures import jpeg
from tests.run.pictures_kit import late_pictures, open_bytes

TABLE = torch.arange(768, dtype=torch.float32).reshape(3, 256).numpy()
SCALE = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def a_late_tensor() -> Any:
    data = jpeg(40, 30, 1)
    source = Source.of(data, (40, 30))
    assert source is not None
    return late_tensor(source, Window.whole(40, 30).cropped(0, 0, 20, 10), TABLE)


def values() -> torch.Tensor:
    return late_values(a_late_tensor())


def late_values(late: Any) -> torch.Tensor:
    return late + 0


@pytest.fixture(autouse=True)
def torchvisions_compose(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType

    module = ModuleType("torchvision.transforms.transforms")
    module.Compose = v1.Compose  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


USES = {
    "shape": lambda late: late.shape,
    "sum": lambda late: late.sum(),
    "operator": lambda late: 2 * late,
    "in a list": lambda late: torch.stack([late, late]),
    "numpy": lambda late: late.numpy().tobytes(),
    "pickle": lambda late: pickle.loads(pickle.dumps(late)),
    "written to": lambda late: late.mul_(2),
    "item": lambda late: late[0, 0, 0].item(),
    "out": lambda late: torch.add(torch.zeros(3, 10, 20), 1, out=late),
    "repr": repr,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_every_use_finds_a_plain_tensor_with_its_values(use: Any) -> None:
    late, plain = a_late_tensor(), values()
    assert is_late(late) and isinstance(late, torch.Tensor)
    found, expected = use(late), use(plain)
    assert type(late) is torch.Tensor and not vars(late)
    assert late.is_contiguous() and torch.equal(late, plain)
    if isinstance(expected, torch.Tensor):
        assert type(found) is torch.Tensor and torch.equal(found, expected)
    else:
        assert found == expected


class Folder(Dataset[Any]):
    """As torchvision's ImageFolder; `keep` are samples that it holds on to."""

    def __init__(self, files: list[bytes], transforms: list[Any], *, keeps: bool = False) -> None:
        self.files, self.transform, self.keeps = files, v1.Compose(transforms), keeps
        self.kept: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        if index in self.kept:
            return self.kept[index], index
        sample = self.transform(open_bytes(self.files[index]).convert("RGB"))
        if self.keeps:
            self.kept[index] = sample
        return sample, index


FILES = [
    *(jpeg(60 + index, 50 + 2 * index, index) for index in range(9)),
    jpeg(64, 64, 3, mode="L"), jpeg(64, 64, 3, progressive=True), jpeg(32, 32, 7),
]  # fmt: skip
PIPELINES: dict[str, Any] = {
    "train": lambda: [
        v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(*SCALE),
    ],
    "evaluation": lambda: [v1.Resize(40), v1.CenterCrop(32), v1.ToTensor()],
    "only crops": lambda: [v1.RandomCrop(32), v1.ToTensor(), v1.Normalize(*SCALE)],
    "more behind": lambda: [v1.RandomResizedCrop(32), v1.ToTensor(), torch.sqrt],
}  # fmt: skip


def batches(dataset: Any, **options: Any) -> list[Any]:
    torch.manual_seed(3)
    return list(DataLoader(dataset, batch_size=5, shuffle=True, **options))


def assert_equal(ours: list[Any], plain: list[Any]) -> None:
    assert len(ours) == len(plain)
    for (x, y), (a, b) in zip(ours, plain, strict=True):
        assert type(x) is torch.Tensor and x.stride() == a.stride()
        assert torch.equal(x, a) and torch.equal(y, b)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_batches_are_equal_bit_for_bit(pipeline: str, workers: int) -> None:
    dataset = Folder(FILES, PIPELINES[pipeline]())
    plain = batches(dataset, num_workers=workers)
    with late_pictures():
        assert_equal(batches(dataset, num_workers=workers), plain)


def test_a_batch_is_decoded_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from slipstream import _native

    sizes = []
    original = _native.decode_batch

    def count(maps: Any, *args: Any) -> Any:
        sizes.append(len(maps))
        return original(maps, *args)

    monkeypatch.setattr(_native, "decode_batch", count)
    with late_pictures():
        next(iter(DataLoader(Folder(FILES[:8], PIPELINES["train"]()), batch_size=8)))
    assert [size for size in sizes if size > 1] == [8]


def test_samples_that_the_dataset_keeps_get_their_values_once() -> None:
    plain_set = Folder(FILES, PIPELINES["evaluation"](), keeps=True)
    plain = [batches(plain_set), batches(plain_set)]
    dataset = Folder(FILES, PIPELINES["evaluation"](), keeps=True)
    with late_pictures():
        first = batches(dataset)
        assert {type(kept) for kept in dataset.kept.values()} == {torch.Tensor}
        first[0][0].zero_()  # the batch's memory is its own
        second = batches(dataset)
    assert_equal(second, plain[1])


def test_other_collates_get_plain_tensors() -> None:
    kinds = []

    def collate(samples: list[Any]) -> Any:
        kinds.extend(type(x) for x, _ in samples)
        return torch.utils.data.default_collate(samples)

    dataset = Folder(FILES, PIPELINES["train"]())
    plain = batches(dataset, collate_fn=collate)
    with late_pictures():
        assert_equal(batches(dataset, collate_fn=collate), plain)
    assert set(kinds) == {torch.Tensor}


def test_sizes_that_differ_raise_as_without() -> None:
    dataset = Folder(FILES, [v1.ToTensor()])
    with pytest.raises(RuntimeError) as plain:
        batches(dataset)
    with late_pictures(), pytest.raises(RuntimeError) as late:
        batches(dataset)
    assert str(late.value) == str(plain.value)


def test_nothing_is_late_outside_of_a_batch(tmp_path: Path) -> None:
    with late_pictures():
        dataset = Folder(FILES, PIPELINES["train"]())
        assert not is_late(dataset[0][0])
        with postponed():
            assert is_late(dataset[0][0])


class Threads(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return batches_module._threads_here()


def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "usable_cores", lambda: 6)
    batches_module._threads_of_worker.cache_clear()
    for workers, threads in ((1, 6), (2, 3), (0, torch.get_num_threads())):
        (batch,) = DataLoader(Threads(), batch_size=4, num_workers=workers)
        assert batch.tolist() == [threads] * 4
    batches_module._threads_of_worker.cache_clear()
