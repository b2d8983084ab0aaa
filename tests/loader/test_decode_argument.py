"""`Loader(decode=...)` where there is no GPU: what is refused, in which words, and what is not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import slipstream
from slipstream.augment import Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor
from slipstream.cuda import compile as compiling
from slipstream.errors import UsageError
from slipstream.loader.decoding import balance_of
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.pictures import jpeg, png

TRAIN = [RandomResizedCrop(24), RandomHorizontalFlip()]
FLOAT = [*TRAIN, ToTensor(), Normalize((0.5,), (0.25,))]
GPU = torch.device("cuda", 0)
PACK = r"only packed JPEGs .*: slipstream pack SOURCE DATASET, then open_dataset\(DATASET\)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures") / "photos"
    root.mkdir()
    for number in range(11):
        (root / f"{number:02d}.jpg").write_bytes(jpeg(60 + number, 50 - number, number))
    (root / "11.png").write_bytes(png(40, 30))
    return root


@pytest.fixture(scope="module")
def packed(folder: Path) -> Path:
    path = folder.with_name("photos.slip")
    pack_source(open_source(folder), path)
    return path


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def make(path: Path, **options: Any) -> Any:
    return elsewhere(slipstream.open_dataset(path), shuffle=True, **{"transform": TRAIN, **options})


def elsewhere(dataset: Any, *, device: Any = None, decode: Any = "auto", **options: Any) -> Any:
    """A loader as it comes from a machine with a GPU."""
    made_with = "auto" if decode == "gpu" else decode
    loader = slipstream.Loader(dataset, 4, decode=made_with, **options)
    loader.device, loader.decode = device, decode
    return loader


@pytest.mark.parametrize("decode", ["GPU", "cuda", "", None, True])
def test_other_values_are_refused(packed: Path, decode: Any) -> None:
    with pytest.raises(UsageError, match=r'decode is .*, expected "auto", "cpu" or "gpu"\.$'):
        make(packed, decode=decode)


@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu")])
def test_the_gpu_needs_a_device_to_leave_batches_on(packed: Path, device: Any) -> None:
    loader = make(packed, decode="gpu", device=device)
    with pytest.raises(
        UsageError,
        match=r'decode="gpu" is not possible: batches stay on the processor: give the loader'
        r' device="cuda"\.$',
    ):
        next(iter(loader))


def test_a_folder_of_files_has_to_be_packed(folder: Path) -> None:
    with pytest.raises(UsageError, match=rf'decode="gpu" is not possible: {PACK}\.$'):
        next(iter(make(folder, decode="gpu", device="cuda")))


def test_a_dataset_of_ones_own_has_to_be_packed() -> None:
    rows = TensorDataset(torch.rand(8, 3))
    with pytest.raises(UsageError, match=rf'decode="gpu" is not possible: {PACK}\.$'):
        next(iter(elsewhere(rows, decode="gpu", device="cuda")))
    with pytest.raises(UsageError, match=r'decode="gpu" is not possible'):
        next(iter(elsewhere([1, 2, 3], decode="gpu", device="cuda", num_workers=1)))


def test_a_dataset_without_jpegs_cannot_be(tmp_path: Path) -> None:
    slipstream.pack_dataset([{"n": k} for k in range(5)], tmp_path / "n.slip")
    loader = make(tmp_path / "n.slip", decode="gpu", device="cuda", transform=None)
    with pytest.raises(UsageError, match=PACK):
        next(iter(loader))


def test_a_transform_that_only_python_knows_cannot_be(packed: Path) -> None:
    """Its pictures are finished by workers, on the processor."""
    loader = make(packed, decode="gpu", device="cuda", transform=[*TRAIN, lambda picture: picture])
    with pytest.raises(UsageError, match='decode="gpu" is not possible'):
        next(iter(loader))


def test_a_machine_without_a_gpu_says_so(packed: Path) -> None:
    loader = make(packed, decode="gpu", device="cuda:0")
    with pytest.raises(
        UsageError,
        match=r"^Cannot decode on cuda:0: torch .* sees no CUDA device here\. Or decode on the CPU:"
        r' Loader\(\.\.\., decode="cpu"\)\.$',
    ):
        next(iter(loader))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"device": "cuda"}, r"device='cuda' is"),
        ({"device": torch.device("cuda", 1), "decode": "cpu"}, r"device='cuda:1' is"),
        ({"device": 0}, r"device='0' is"),
        ({"decode": "gpu"}, r'decode="gpu" is'),
        ({"decode": "gpu", "device": "cuda"}, r"device='cuda' and decode=\"gpu\" are"),
    ],
)
def test_a_machine_without_a_gpu_says_so_at_once(
    packed: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], what: str
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    dataset = slipstream.open_dataset(packed)
    with pytest.raises(
        UsageError, match=rf"^{what} not possible: torch .* sees no CUDA device here\. Leave"
    ):
        slipstream.Loader(dataset, 4, **options)


def test_nothing_is_lost_by_an_error(packed: Path) -> None:
    """The loader goes on from the same place when it is asked for something that can be."""
    loader = make(packed, decode="gpu")
    with pytest.raises(UsageError):
        next(iter(loader))
    assert loader.state_dict()["position"] == 0
    loader.decode = "cpu"
    keys = [key for batch in loader for key in batch["key"]]
    assert len(keys) == len(loader.dataset)


# Where there is no GPU, "auto" is "cpu".


@pytest.mark.parametrize("transform", [TRAIN, FLOAT], ids=["array", "float"])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_auto_gives_the_batches_of_the_processor(
    packed: Path, folder: Path, transform: Any, device: Any
) -> None:
    for path in (packed, folder):
        auto = make(path, decode="auto", transform=transform, device=device)
        cpu = make(path, decode="cpu", transform=transform, device=device)
        for _ in range(2):
            for here, there in zip(auto, cpu, strict=True):
                assert torch.equal(here["image"], there["image"]) and here["key"] == there["key"]


def test_auto_is_what_one_gets(packed: Path) -> None:
    assert make(packed).decode == "auto"


def test_auto_is_for_any_dataset() -> None:
    loader = slipstream.Loader(TensorDataset(torch.arange(6)), 2, decode="auto")
    assert torch.cat([batch[0] for batch in loader]).tolist() == list(range(6))


# What print(loader) says.


def test_who_decodes_is_said_of_pictures(packed: Path, folder: Path, tmp_path: Path) -> None:
    def said(loader: Any) -> list[str]:
        return [line.strip() for line in str(loader).splitlines() if "decode:" in line]

    stay = ["decode: on the processor (batches stay there)"]
    for loader in (make(packed), make(folder), make(packed, device="cpu", decode="auto")):
        assert said(loader) == stay
        list(loader)
        assert said(loader) == stay
    assert said(make(packed, decode="cpu")) == ["decode: on the processor (as given)"]
    begins = ["decode: on the processor (to begin with; measured in training)"]
    assert said(make(packed, device="cuda")) == begins
    assert said(make(packed, device="cuda", decode="gpu")) == ["decode: on the GPU (as given)"]
    packed_only = ["decode: on the processor (a GPU decodes packed JPEGs only)"]
    assert said(make(folder, device="cuda")) == packed_only
    slipstream.pack_dataset([{"n": k} for k in range(5)], tmp_path / "n.slip")
    assert said(make(tmp_path / "n.slip", transform=None)) == []
    assert said(slipstream.Loader(TensorDataset(torch.rand(8, 3)), 4)) == []


def test_auto_says_why_the_gpu_is_not_used(packed: Path) -> None:
    loader = make(packed, decode="auto", device="cuda")
    assert balance_of(loader, GPU) is None
    reason = f"torch {torch.__version__} sees no CUDA device here"
    assert f"  decode: on the processor ({reason})" in str(loader).splitlines()


def test_a_gpu_that_was_asked_for_is_named(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "load_kernels", lambda device: {})
    loader = make(packed, decode="gpu", device="cuda")
    balance = balance_of(loader, GPU)
    assert balance is not None and balance.share == 1.0
    assert "  decode: on the GPU (as given)" in str(loader).splitlines()


def test_what_is_measured_lasts_as_long_as_the_way_is_the_same(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "why_not", lambda device: "")
    monkeypatch.setattr(compiling, "load_kernels", lambda device: {})
    loader = make(packed, decode="auto", device="cuda")
    first = balance_of(loader, GPU)
    assert first is not None and first.share == 0.0
    assert "  decode: on the processor (to begin with; measured in training)" in str(loader)
    assert balance_of(loader, GPU) is first, "another epoch goes on with it"
    loader.num_workers = 1
    assert balance_of(loader, GPU) is not first
