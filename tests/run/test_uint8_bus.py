"""`uint8-bus`: batches are bytes until they are on a device, and plain tensors to all others.

There is no device here: where it says so, the processor's memory stands for that of one.
"""

import copy
import io
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torch.utils.dlpack import from_dlpack

from slipstream.doctor.capture import Process
from slipstream.run import seen
from slipstream.run.apply import apply_all
from slipstream.run.fix import Situation
from slipstream.run.fixes import uint8_bus
from slipstream.run.pictures import late_batch as module
from slipstream.run.pictures import pixel_batch
from slipstream.run.pictures.late_batch import arrive, is_late_batch, late_batch, tell, values_of
from tests.augment.standins import v1
from tests.pictures import jpeg
from tests.run.loop_kit import situation
from tests.run.test_pictures_batches import FILES, PIPELINES, SCALE, Folder

TABLE = (torch.arange(768.0).reshape(3, 256) / 255 - 0.4) / 0.3
PIXELS = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8))
CPU = torch.device("cpu")


def plain() -> torch.Tensor:
    """What the batch stands for."""
    out = torch.empty(4, 3, 6, 5)
    for channel in range(3):
        out[:, channel] = TABLE[channel][PIXELS[..., channel].long()]
    return out


def late() -> Any:
    return late_batch(PIXELS.clone(), TABLE)


class Ear:
    """Hears what becomes of batches."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def sent(self) -> None:
        self.heard.append("sent")

    def used(self) -> None:
        self.heard.append("used")

    def failed(self, error: Exception) -> None:
        self.heard.append(f"failed: {error}")


@pytest.fixture
def ear() -> Iterator[Ear]:
    found = Ear()
    tell(found)
    yield found
    tell(None)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor's memory stands for that of a device."""
    monkeypatch.setattr(module, "_HERE", ())


def test_values_are_those_of_the_processor() -> None:
    found = arrive(PIXELS, TABLE, CPU, None, False, None)
    assert torch.equal(found, plain()) and found.is_contiguous() and found.dtype is torch.float32
    assert torch.allclose(found, values_of(late())) and torch.equal(found, values_of(late()))
    half = arrive(PIXELS, TABLE, CPU, torch.float16, True, torch.channels_last)
    expected = plain().to(CPU, torch.float16, memory_format=torch.channels_last)
    assert torch.equal(half, expected) and half.stride() == expected.stride()


WAYS = {
    "to": lambda x: x.to("cpu"),
    "device": lambda x: x.to(device=CPU, non_blocking=True),
    "dtype": lambda x: x.to("cpu", torch.float64),
    "format": lambda x: x.to("cpu", memory_format=torch.channels_last),
    "copy": lambda x: x.to("cpu", copy=True),
    "method of the class": lambda x: type(x).to(x, "cpu"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_on_a_device_it_is_a_plain_tensor(way: Any, elsewhere: None, ear: Ear) -> None:
    batch = late()
    found, expected = way(batch), way(plain())
    assert type(found) is torch.Tensor and found.dtype is expected.dtype
    assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert ear.heard == ["sent"]
    # It can still be used here, and sent again.
    assert is_late_batch(batch) and torch.equal(batch.to("cpu"), plain())
    assert torch.equal(batch + 0, plain())


STAYS = {
    "dtype": lambda x: x.to(torch.float64),
    "like another": lambda x: x.to(torch.zeros(1)),
    "cpu": lambda x: x.to("cpu"),
    "cpu()": lambda x: x.cpu(),
}


@pytest.mark.parametrize("way", STAYS.values(), ids=STAYS)
def test_what_stays_here_is_a_use(way: Any, ear: Ear) -> None:
    batch = late()
    assert torch.equal(way(batch), way(plain()))
    assert type(batch) is torch.Tensor and ear.heard == ["used"]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2


def saved(x: torch.Tensor) -> Any:
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    return torch.load(file)["x"]


USES = {
    "sum": lambda x: x.sum(),
    "operator": lambda x: 2 * x,
    "index": lambda x: x[1:3, 0],
    "in a list": lambda x: torch.cat([x, x]),
    "keyword": lambda x: torch.add(input=x, other=x),
    "numpy": lambda x: x.numpy().tobytes(),
    "array": lambda x: np.asarray(x).tobytes(),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "deepcopy": copy.deepcopy,
    "written to": lambda x: x.mul_(2),
    "data": lambda x: x.data,
    "view": lambda x: x.view(-1),
    "out": lambda x: torch.add(torch.zeros(4, 3, 6, 5), 1, out=x),
    "repr": repr,
    "list": lambda x: x.tolist(),
    "iterate": lambda x: torch.stack([*x]),
    "model": lambda x: torch.nn.functional.conv2d(x, torch.ones(1, 3, 2, 2)),
    "grad": lambda x: x.requires_grad_().square().sum(),
    "storage": lambda x: x.untyped_storage().nbytes(),
    "address": lambda x: x.data_ptr() != 0,
    "saved": saved,
    "dlpack": lambda x: from_dlpack(x) + 0,
    "function": Doubled.apply,
    "collated": lambda x: torch.utils.data.default_collate([x, x]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_every_use_here_finds_a_plain_tensor(use: Any, ear: Ear) -> None:
    batch, expected = late(), plain()
    batch.mine = "kept"
    assert isinstance(batch, torch.Tensor) and batch.__class__ is torch.Tensor
    found, wanted = use(batch), use(expected)
    assert type(batch) is torch.Tensor and vars(batch) == {"mine": "kept"}
    assert batch.is_contiguous() and torch.equal(batch, expected)
    if isinstance(wanted, torch.Tensor):
        assert type(found) is torch.Tensor and torch.equal(found, wanted)
    else:
        assert found == wanted
    assert ear.heard == ["used"]
    batch.sum().item()
    assert ear.heard == ["used"]


def test_asking_about_it_is_no_use(ear: Ear) -> None:
    batch, expected = late(), plain()
    for one in (batch, expected):
        assert one.shape == (4, 3, 6, 5) and one.size(0) == len(one) == 4 and one.dim() == one.ndim
        assert one.dtype is torch.float32 and one.device == CPU and not one.is_cuda
        assert one.is_contiguous() and one.stride() == (90, 30, 5, 1) and one.numel() == 360
        assert not one.requires_grad and one.is_floating_point() and one.nbytes == 1440
        assert torch.is_tensor(one) and not one.is_pinned() and one.element_size() == 4
    assert is_late_batch(batch) and not ear.heard


def test_in_inference_mode() -> None:
    with torch.inference_mode():
        inside, kept = late(), late()
        assert torch.equal(inside * 2, plain() * 2)
    assert torch.equal(kept * 2, plain() * 2) and type(kept) is torch.Tensor


def test_code_that_comes_past_python_finds_its_values(elsewhere: None) -> None:
    batch = late()
    assert torch.allclose(torch.func.vmap(torch.sum)(batch), plain().sum((1, 2, 3)))
    with torch._C.DisableTorchFunctionSubclass():
        assert torch.equal(torch.add(batch, 1), plain() + 1)
        batch.mul_(2)
    assert torch.equal(batch.to("cpu"), 2 * plain())  # what was written is sent
    assert torch.equal(batch + 0, 2 * plain())
    assert type(batch) is torch.Tensor


def test_where_it_cannot_become_plain_it_still_has_its_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(one: Any, other: Any) -> None:
        raise RuntimeError("held elsewhere")

    monkeypatch.setattr(torch._C, "_swap_tensor_impl", refuse)
    batch = late()
    assert torch.equal(batch * 2, plain() * 2)
    batch.add_(1)
    assert torch.equal(torch.stack([batch]), plain()[None] + 1)
    assert batch.numpy().tobytes() == (plain() + 1).numpy().tobytes()


def test_a_failure_sends_floats(elsewhere: None, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "arrive", fail)
    assert torch.equal(late().to("cpu"), plain())
    assert ear.heard == ["used", "failed: out of memory"]


def test_a_device_that_is_not_there_is_torchs_error(ear: Ear) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    ways: list[Any] = [lambda x: x.to("cuda"), lambda x: x.cuda(), lambda x: x.cuda(0)]
    for way in ways:
        with pytest.raises((AssertionError, RuntimeError)) as expected:
            way(plain())
        with pytest.raises(type(expected.value)) as found:
            way(late())
        assert str(found.value) == str(expected.value)
    assert ear.heard == ["used"] * 3


def test_a_digest_is_no_use(ear: Ear) -> None:
    batch = late()
    undo = uint8_bus.apply(situation())
    tell(ear)
    try:
        assert seen.digest([batch, 1]) == seen.digest([plain(), 1])
    finally:
        undo()
    assert is_late_batch(batch) and not ear.heard


# Batches of workers.


@pytest.fixture(autouse=True)
def torchvisions_compose(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("torchvision.transforms.transforms")
    fake.Compose = v1.Compose  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr(pixel_batch, "_LEAST_BYTES", 1)


class Fixed:
    """With these fixes in place."""

    def __init__(self, *names: str) -> None:
        self.names = names or ("native-pictures", "uint8-bus")

    def __enter__(self) -> Situation:
        self.known = situation()
        self.undo = apply_all(self.names, self.known)
        return self.known

    def __exit__(self, *error: Any) -> None:
        while self.undo:
            self.undo.popitem()[1]()


def batches(dataset: Any, **options: Any) -> list[Any]:
    torch.manual_seed(3)
    given = {"batch_size": 5, "shuffle": True, "num_workers": 2, **options}
    return list(DataLoader(dataset, **given))


def assert_equal(ours: list[Any], plain: list[Any]) -> None:
    assert len(ours) == len(plain)
    for (x, y), (a, b) in zip(ours, plain, strict=True):
        assert torch.equal(x, a) and x.stride() == a.stride() and torch.equal(y, b)
        assert type(x) is torch.Tensor


ALL = ("native-pictures", "fast-loader", "shared-lists", "uint8-bus")


@pytest.mark.parametrize("names", [("native-pictures", "uint8-bus"), ALL], ids=["alone", "all"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_batches_of_workers_are_equal(pipeline: str, names: tuple[str, ...]) -> None:
    dataset = Folder(FILES, PIPELINES[pipeline]())
    expected = batches(dataset)
    with Fixed(*names) as known:
        ours = batches(dataset)
        # Two of the files are not the engine's, and "more behind" is no end of a chain.
        count = sum(is_late_batch(x) for x, _ in ours)
        assert (count > 0) == (pipeline != "more behind")
        assert_equal(ours, expected)
    assert known.failures == {}


def test_batches_are_bytes_in_the_slots_of_workers() -> None:
    dataset = Folder([jpeg(64, 64, k) for k in range(24)], PIPELINES["train"]())
    sizes = []
    with Fixed(*ALL):
        for x, _ in DataLoader(dataset, 8, num_workers=1):
            sizes.append(vars(x)["_pixels"].nbytes)
    assert sizes == [8 * 32 * 32 * 3] * 3


def test_without_workers_and_with_other_collates_nothing_is_late() -> None:
    dataset = Folder(FILES, PIPELINES["train"]())
    with Fixed():
        assert not any(is_late_batch(x) for x, _ in batches(dataset, num_workers=0))
        own = batches(dataset, collate_fn=own_collate)
        assert not any(is_late_batch(x) for x, _ in own)


def own_collate(samples: Any) -> Any:
    return torch.utils.data.default_collate(samples)


def test_without_native_pictures_nothing_is_late() -> None:
    dataset = Folder(FILES, PIPELINES["train"]())
    with Fixed("uint8-bus"):
        assert not any(is_late_batch(x) for x, _ in batches(dataset))


class Telling(Folder):
    """What it has kept, by the time a sample is made a second time."""

    def __getitem__(self, index: int) -> Any:
        again = index in self.kept
        x, _ = super().__getitem__(index)
        return x, torch.tensor([index, int(again), int(type(x) is torch.Tensor)])


def test_samples_that_the_dataset_keeps_get_their_values() -> None:
    def run() -> list[Any]:
        data = Telling(FILES[:8], PIPELINES["evaluation"](), keeps=True)
        loader = DataLoader(data, 4, num_workers=1, persistent_workers=True)
        return [batch for _ in range(2) for batch in loader]

    expected = run()
    with Fixed():
        ours = run()
        assert [is_late_batch(x) for x, _ in ours] == [True, True, False, False]
        for (x, y), (a, b) in zip(ours, expected, strict=True):
            assert torch.equal(x, a) and y[:, :2].equal(b[:, :2])
        assert bool(ours[-1][1][:, 1:].all())


def test_a_damaged_file_is_told_of_as_ever() -> None:
    damaged = jpeg(64, 64, 1)[:400]
    dataset = Folder([*FILES[:7], damaged], PIPELINES["train"]())

    def run() -> str:
        with pytest.raises(OSError) as error:
            batches(dataset, batch_size=4, num_workers=1)
        return str(error.value).splitlines()[-1]

    expected = run()
    with Fixed() as known:
        assert run() == expected
        assert any(is_late_batch(x) for x, _ in batches(Folder(FILES[:8], PIPELINES["train"]())))
    assert known.failures == {}


def test_a_failure_in_a_worker_makes_floats(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    dataset = Folder(FILES[:8], PIPELINES["evaluation"]())
    expected = batches(dataset)

    def fail(*args: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(pixel_batch, "_room", fail)
    with Fixed():
        assert_equal(batches(dataset), expected)
    assert "uint8-bus failed and is off" in capfd.readouterr().err


def test_a_loop_that_uses_batches_here_gets_floats_again() -> None:
    dataset = Folder([jpeg(64, 64, k) for k in range(40)], PIPELINES["evaluation"]())
    kinds = []
    with Fixed() as known:
        for x, _ in DataLoader(dataset, 2, num_workers=1):
            kinds.append(is_late_batch(x))
            x.mean()
    assert kinds[:3] == [True] * 3 and kinds[-5:] == [False] * 5
    assert "uses batches before they are on the device" in known.notes["uint8-bus"][0]


def learn(dataset: Any, send: Any) -> list[float]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(3600, 12)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        for x, y in DataLoader(dataset, 4, shuffle=True, num_workers=2):
            assert x.size(0) == len(y)
            loss: Any = torch.nn.functional.cross_entropy(model(send(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def test_a_loop_that_sends_its_batches_learns_the_same(elsewhere: None) -> None:
    dataset = Folder(FILES, PIPELINES["train"]())
    expected = learn(dataset, lambda x: x)
    with Fixed(*ALL) as known:
        assert learn(dataset, lambda x: x.to("cpu", non_blocking=True)) == expected
    assert known.notes["uint8-bus"] == ["batches go to the device as bytes"]
    assert known.failures == {}


def png(seed: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_a_loop_over_other_pictures_is_left_alone(elsewhere: None) -> None:
    steps = [v1.CenterCrop(32), v1.ToTensor(), v1.Normalize(*SCALE)]
    dataset = Folder([png(k) for k in range(12)], steps)
    expected = learn(dataset, lambda x: x)
    with Fixed(*ALL) as known:
        assert learn(dataset, lambda x: x.to("cpu")) == expected
    assert "uint8-bus" not in known.notes and known.failures == {}


def test_it_applies_where_workers_make_pictures_for_a_device() -> None:
    def asked(clock: str = "device", kind: str = "JPEG", **facts: Any) -> tuple[bool, str]:
        made = {
            "workers": 2, "collate": "default_collate", "dataset": "ImageFolder",
            "transforms": ["Resize", "ToTensor", "Normalize"], "batch_bytes": 154 << 20,
        }  # fmt: skip
        process = Process(1, loader=0, number=0, facts={"pictures": {kind: [9, 9]}})
        loaders = [SimpleNamespace(**{**made, **facts})]
        found = situation(clock=clock, processes=[process], loaders=loaders)
        return uint8_bus.applies(found)

    assert asked() == (True, "batches of ImageFolder have 154 MiB as floats")
    assert asked(transforms=["ToTensor"])[0]
    assert asked(clock="host") == (
        False, "nothing is copied to a device: on a processor there is no bus",
    )  # fmt: skip
    assert not asked(kind="PNG")[0]
    assert not asked(workers=0)[0] and not asked(collate="mine")[0]
    assert not asked(transforms=["ToTensor", "RandomErasing"])[0] and not asked(transforms=[])[0]
