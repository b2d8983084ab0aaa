"""Pictures that the GPU decodes: the processor's, bit for bit, whatever happens around them."""

import gc
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

import slipstream
from slipstream import _native
from slipstream.augment import (
    CenterCrop,
    Normalize,
    PILToTensor,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
)
from slipstream.cuda.compile import why_not
from slipstream.errors import CorruptDataset
from slipstream.loader import balance, decoding, gpu_engine, sources
from slipstream.loader.bad_samples import NoNeighbour
from slipstream.loader.balance import Balance
from slipstream.pack.fields import Payload, encode_value
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from slipstream.pack.writer import ShardWriter
from slipstream.store.manifest import Manifest, serialize_manifest
from tests.loader.damage import damage
from tests.native.composer import SAMPLINGS, compose, plane_sizes
from tests.pictures import jpeg, png, turned_jpeg, webp

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(
        torch.cuda.is_available() and bool(why_not(torch.device("cuda", 0))),
        reason="needs a GPU that the kernels run on, and cuda-core",
    ),
]

TRAIN = [RandomResizedCrop(48), RandomHorizontalFlip()]
FLOAT = [*TRAIN, ToTensor(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
WHOLE = [Resize((40, 32))]


def odd_jpeg(sampling: str, size: tuple[int, int], seed: int) -> bytes:
    random, luma = np.random.default_rng(seed), SAMPLINGS[sampling]
    planes = [random.integers(0, 256, (h, w), dtype=np.uint8) for w, h in plane_sizes(size, luma)]
    return compose(planes, size, luma, 85)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of picture in one dataset, tiles and files, of all sizes."""
    root = tmp_path_factory.mktemp("mixed") / "pictures"
    root.mkdir()
    makers: list[Any] = [
        lambda w, h, n: jpeg(w, h, n, subsampling="4:4:4"),
        lambda w, h, n: jpeg(w, h, n, subsampling="4:2:2"),
        lambda w, h, n: jpeg(w, h, n, subsampling="4:2:0"),
        lambda w, h, n: jpeg(w, h, n, mode="L"),
        lambda w, h, n: jpeg(w, h, n, mode="CMYK"),
        lambda w, h, n: jpeg(w, h, n, progressive=True, quality=70),
        lambda w, h, n: odd_jpeg("4:4:0", (w, h), n),
        lambda w, h, n: odd_jpeg("4:1:1", (w, h), n),
        lambda w, h, n: odd_jpeg("4:1:0", (w, h), n),
        lambda w, h, n: turned_jpeg(6, w, h),
        png,
        webp,
    ]
    for number in range(4 * len(makers) - 1):
        width, height = 40 + 23 * number % 190, 230 - 31 * number % 180
        data = makers[number % len(makers)](width, height, number)
        (root / f"{number:02d}.picture").with_suffix(suffix_of(data)).write_bytes(data)
    path = root.with_name("mixed.slip")
    pack_source(open_source(root), path, shard_bytes=60_000)
    return path


def suffix_of(data: bytes) -> str:
    return {b"\xff\xd8": ".jpg", b"\x89P": ".png", b"RI": ".webp"}[data[:2]]


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small pictures of one kind."""
    root = tmp_path_factory.mktemp("jpegs") / "pictures"
    root.mkdir()
    for number in range(64):
        (root / f"{number:02d}.jpg").write_bytes(jpeg(60 + number % 7, 50 + number % 5, number))
    path = root.with_name("jpegs.slip")
    pack_source(open_source(root), path)
    return path


def make(path: Path, batch_size: int = 8, *, decode: str = "gpu", **options: Any) -> Any:
    options = {"shuffle": True, "transform": FLOAT, "device": "cuda", **options}
    if "sampler" in options:
        del options["shuffle"]
    return slipstream.Loader(
        slipstream.open_dataset(path), batch_size, decode=decode, **options
    )  # fmt: skip


def check_equal(path: Path, epochs: int = 1, **options: Any) -> None:
    """Batches of the GPU are those of the processor, to the bit and to the stride."""
    here = make(path, **options, decode="cpu")
    there = make(path, **options)
    for _ in range(epochs):
        for expected, got in zip(here, there, strict=True):
            same_batch(got, expected)
    assert there.choice.decode == "on the GPU"


def same_batch(got: Any, expected: Any) -> None:
    assert got["key"] == expected["key"]
    assert got["image"].is_cuda and got["image"].dtype == expected["image"].dtype
    assert got["image"].stride() == expected["image"].stride()
    assert torch.equal(got["image"], expected["image"])


def repeated(count: int, samples: int = 64) -> list[int]:
    """A long epoch of a small dataset."""
    return [number % samples for number in range(count)]


# Pixels.


@pytest.mark.parametrize(
    "transform", [TRAIN, [*TRAIN, PILToTensor()], FLOAT], ids=["array", "uint8", "float"]
)
def test_batches_are_bit_equal_to_the_processors(mixed: Path, transform: Any) -> None:
    check_equal(mixed, transform=transform, epochs=2)


@pytest.mark.parametrize("filter", ["bilinear", "bicubic", "lanczos", "nearest", "box"])
def test_every_filter(mixed: Path, filter: str) -> None:
    check_equal(mixed, transform=[RandomResizedCrop((40, 64), interpolation=filter), ToTensor()])
    check_equal(mixed, transform=[Resize((33, 70), interpolation=filter)])


def test_pictures_for_validation(mixed: Path) -> None:
    check_equal(mixed, transform=[Resize(56), CenterCrop(48), ToTensor()], shuffle=False)


@pytest.mark.parametrize(
    "transform",
    [
        [CenterCrop(120)],
        [CenterCrop((60, 250)), RandomHorizontalFlip(), ToTensor()],
        [Resize(40), CenterCrop(64), PILToTensor()],
    ],
    ids=["array", "flipped", "resized"],
)
def test_windows_that_reach_over_an_edge(mixed: Path, transform: Any) -> None:
    """Black around some pictures, of tiles and of files."""
    check_equal(mixed, transform=transform)


@pytest.mark.parametrize(("across", "down"), [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.5)])
def test_flips(mixed: Path, across: float, down: float) -> None:
    flips = [RandomHorizontalFlip(across), RandomVerticalFlip(down)]
    check_equal(mixed, transform=[RandomResizedCrop(32), *flips, PILToTensor()])


@pytest.mark.parametrize("batch_size", [1, 7, 46, 47, 100])
def test_batches_of_any_size(mixed: Path, batch_size: int) -> None:
    """One sample, and last batches that are shorter."""
    check_equal(mixed, batch_size=batch_size)


def test_large_results_of_small_pictures(jpegs: Path) -> None:
    check_equal(jpegs, transform=[Resize((300, 500)), ToTensor()])


def test_a_batch_that_is_cut_into_slots(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST_SLOT_BYTES", 100_000)
    check_equal(mixed, batch_size=20)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_work_that_is_shared_gives_the_same(
    mixed: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(
        decoding, "Balance", lambda choice, **given: Balance(choice, share=share)
    )  # fmt: skip
    check_equal(mixed, epochs=2)
    check_equal(mixed, transform=[CenterCrop(120)])


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_workers_do_not_change_pixels(mixed: Path) -> None:
    for workers in (1, 3, 8):
        check_equal(mixed, num_workers=workers, prefetch_factor=workers)


# Bad samples.


@pytest.fixture
def bad_bits(tmp_path: Path, jpegs: Path) -> Path:
    """Samples 5 and 20 have bits that are no code, under checksums that fit: only who decodes can
    find out.
    """
    dataset = slipstream.open_dataset(jpegs)
    path = tmp_path / "bits.slip"
    path.mkdir()
    writer = ShardWriter(path, 0, dataset.fields, first_item=0)
    for index in range(len(dataset)):
        record, sample = bytearray(dataset.raw(index, "image")), dataset[index]
        if index in (5, 20):
            end = len(record) - int.from_bytes(record[8:12], "little")
            record[end - 80 : end] = b"\xff" * 80
        height, width, _ = sample["image"].shape
        image = Payload(bytes(record), width, height, coding=1)
        writer.add(
            [
                image if f.name == "image" else encode_value(f, sample[f.name])
                for f in dataset.fields
            ]
        )
    entry = writer.finish(end_item=len(dataset), skipped=[])
    manifest = Manifest(dataset.fields, (entry,), dataset.classes, {})
    (path / "manifest.json").write_bytes(serialize_manifest(manifest))
    return path


@pytest.fixture
def bad_disk(tmp_path: Path, jpegs: Path) -> Path:
    """The same samples have a byte turned over, and checksums that tell."""
    path = tmp_path / "disk.slip"
    path.mkdir()
    for file in jpegs.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    damage(path, "image", [5, 20], byte=600)
    return path


@pytest.mark.parametrize("kind", ["bad_bits", "bad_disk"])
def test_a_bad_picture_is_named(kind: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(kind)
    said = {"bad_bits": "invalid Huffman code", "bad_disk": "checksum does not match"}[kind]
    for decode in ("cpu", "gpu"):
        loader = make(path, transform=WHOLE, shuffle=False, decode=decode)
        with pytest.raises(CorruptDataset, match=rf"sample 5: .*{said}.* on_error=") as caught:
            list(loader)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["bad_bits", "bad_disk"])
@pytest.mark.parametrize("policy", ["skip", "substitute"])
@pytest.mark.parametrize("transform", [WHOLE, [*WHOLE, ToTensor()]], ids=["array", "float"])
def test_bad_pictures_are_left_out_or_replaced(
    kind: str, policy: str, transform: Any, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(kind)
    loaders = [
        make(path, transform=transform, on_error=policy, decode=decode) for decode in ("cpu", "gpu")
    ]
    for _ in range(2):
        for expected, got in zip(*loaders, strict=True):
            same_batch(got, expected)
    here, there = (sorted(loader.bad_samples, key=str) for loader in loaders)
    assert {bad.index for bad in there} == {5, 20}
    assert [(b.index, b.epoch, b.substitute) for b in here] == [
        (b.index, b.epoch, b.substitute) for b in there
    ]
    assert all("picture cannot be decoded" in bad.reason for bad in there)


def test_a_batch_of_bad_pictures_only_is_left_out(bad_bits: Path) -> None:
    loader = make(bad_bits, 1, transform=WHOLE, on_error="skip")
    assert len(list(loader)) == 62


def test_no_neighbour_left(bad_bits: Path) -> None:
    dataset = slipstream.open_dataset(bad_bits).subset([5] * 30)
    options = {"transform": WHOLE, "device": "cuda", "decode": "gpu", "on_error": "substitute"}
    with pytest.raises(NoNeighbour, match="so are the 16 after it"):
        list(slipstream.Loader(dataset, 5, **options))


def test_the_loop_may_go_on_after_an_error(bad_bits: Path) -> None:
    iterator = iter(make(bad_bits, transform=WHOLE, shuffle=False))
    with pytest.raises(CorruptDataset):
        next(iterator)
    assert next(iterator)["key"][0] == "08.jpg"
    iterator.close()


def test_samples_that_join_later_are_checked_too(bad_disk: Path) -> None:
    """A checksum is looked at once; a subset may change between epochs."""
    subset = Subset(slipstream.open_dataset(bad_disk), [0, 1, 2, 3])
    loader = slipstream.Loader(subset, 4, transform=WHOLE, device="cuda", decode="gpu")
    for _ in range(2):
        assert len(next(iter(loader))["key"]) == 4
    subset.indices = [0, 1, 2, 5]
    with pytest.raises(CorruptDataset, match="checksum does not match"):
        list(loader)


# Where one is.


def test_resuming_in_the_middle_of_an_epoch(mixed: Path) -> None:
    """Also with another who decodes."""
    loader = make(mixed, 5)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    assert state["position"] == 15
    rest = list(iterator)
    for decode in ("gpu", "cpu"):
        again = make(mixed, 5, decode=decode)
        again.load_state_dict(state)
        for expected, got in zip(rest, again, strict=True):
            same_batch(got, expected)


def test_an_early_break_leaves_no_gpu_memory(jpegs: Path) -> None:
    before = None
    for number in range(40):
        for _ in make(jpegs):
            break
        gc.collect()
        if number == 15:
            before = torch.cuda.memory_allocated()
    assert before is not None and torch.cuda.memory_allocated() <= before


def test_the_loader_says_who_decodes(jpegs: Path) -> None:
    loader = make(jpegs)
    next(iter(loader))
    assert "  decode: on the GPU (as given)" in str(loader).splitlines()


# Memory.


def test_memory_does_not_grow(jpegs: Path) -> None:
    """Between batch 2,000 and batch 10,000, on the device and page-locked."""
    torch.cuda.reset_peak_memory_stats()
    early: tuple[int, int, int] | None = None
    for number, _ in enumerate(make(jpegs, 4, sampler=repeated(40_000))):
        if number == 2000:
            early = memory_in_use()
    late = memory_in_use()
    assert number == 9999 and early is not None
    # Crops differ in size. 8,000 batches that stay would take more; what torch's allocator takes
    # for tensors of as many bytes depends on who came first.
    for before, after, slack in zip(early, late, (8 << 20, 64 << 20, 8 << 20), strict=True):
        assert after <= before + slack, (early, late)


def memory_in_use() -> tuple[int, int, int]:
    """Bytes: of tensors at most, of the device, of page-locked memory."""
    pinned = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    return torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved(), pinned


def test_memory_does_not_grow_with_epochs(jpegs: Path) -> None:
    loader = make(jpegs, 16)
    early: tuple[int, int, int] | None = None
    for epoch in range(60):
        for _ in loader:
            pass
        if epoch == 15:
            early = memory_in_use()
    late = memory_in_use()
    assert early is not None
    assert all(after <= before + (1 << 20) for before, after in zip(early, late, strict=True))


def test_batches_in_use_and_kept_ones_stay_what_they_are(mixed: Path) -> None:
    """Kernels that read a batch late, on two streams, while the loader runs ahead as far as it can;
    every fifth batch is kept to the end.
    """
    expected = [batch["image"].cpu() for batch in make(mixed, 2, decode="cpu")]
    loader = make(mixed, 2, num_workers=2, prefetch_factor=8)
    side = torch.cuda.Stream()
    kept, sums, late = [], [], []
    for _ in range(3):
        loader.set_epoch(0)
        for number, batch in enumerate(loader):
            value = batch["image"]
            torch.cuda._sleep(1_000_000)
            sums.append(value.double().sum())
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)
                late.append(value.double().mean())
            value.record_stream(side)
            if number % 5 == 0:
                kept.append((number, value))
            del batch, value
    torch.cuda.synchronize()
    assert len(sums) == 3 * len(expected)
    for got, mean, want in zip(sums, late, expected * 3, strict=True):
        assert abs(got.item() - want.double().sum().item()) < 1e-3
        assert abs(mean.item() - want.double().mean().item()) < 1e-6
    for place, value in kept:
        assert torch.equal(value.cpu(), expected[place])


def test_a_batch_is_ready_for_any_stream(mixed: Path) -> None:
    expected = [batch["image"].cpu() for batch in make(mixed, decode="cpu")]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        got = [batch["image"].cpu() for batch in make(mixed)]
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)


# With others.


def test_two_loaders_in_two_threads(mixed: Path) -> None:
    expected = [batch["image"].cpu() for batch in make(mixed, 4, decode="cpu")]
    wrong: list[str] = []

    def train(name: str) -> None:
        loader = make(mixed, 4)
        for epoch in range(4):
            loader.set_epoch(0)
            got = [batch["image"].cpu() for batch in loader]
            if not all(torch.equal(a, b) for a, b in zip(got, expected, strict=True)):
                wrong.append(f"{name}, epoch {epoch}")

    threads = [threading.Thread(target=train, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert wrong == [] and not any(thread.is_alive() for thread in threads)


class Step(torch.nn.Module):
    """A small training step's forward half."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Conv2d(3, 4, 3, device="cuda")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.weights(images).relu().mean(dim=(1, 2, 3))
        return found


@torch.no_grad()
def test_a_captured_step_beside_the_loader(jpegs: Path) -> None:
    """The step is captured while the loader decodes ahead, then replayed on every batch."""
    step = Step()
    static = torch.zeros((8, 3, 48, 48), device="cuda")
    iterator = iter(make(jpegs, sampler=repeated(400), num_workers=2, prefetch_factor=8))
    next(iterator)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = step(static)
    batches = 0
    for batch in iterator:
        static.copy_(batch["image"])
        graph.replay()
        torch.testing.assert_close(result, step(batch["image"]))
        batches += 1
    assert batches == 49


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler
@torch.no_grad()
def test_a_compiled_step_beside_the_loader(jpegs: Path) -> None:
    pytest.importorskip("triton", reason="torch.compile needs it on a GPU")
    step = Step()
    compiled = torch.compile(step, mode="reduce-overhead")
    for batch in make(jpegs, sampler=repeated(240)):
        torch.testing.assert_close(
            compiled(batch["image"]), step(batch["image"]), rtol=1e-3, atol=1e-4
        )


# "auto".


def test_auto_finds_that_the_gpu_is_faster(jpegs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that takes its time for each picture, and a loop that does nothing else."""
    decode_windows = gpu_engine.decode_windows

    def slowly(rows: Any, *rest: Any) -> None:
        time.sleep(0.004 * len(rows.map_ids))
        decode_windows(rows, *rest)

    monkeypatch.setattr(gpu_engine, "decode_windows", slowly)
    monkeypatch.setattr(sources, "_TOGETHER", 1)  # changes show after few batches
    for name, value in (("_WINDOW", 10), ("_WINDOW_S", 0.1), ("_SKIP", 12)):
        monkeypatch.setattr(balance, name, value)
    order = repeated(8 * 200)
    loader = make(jpegs, sampler=order, decode="auto")
    for expected, got in zip(make(jpegs, sampler=order, decode="cpu"), loader, strict=True):
        same_batch(got, expected)
    choice = loader.choice
    assert choice.decode.endswith("on the GPU"), choice.history
    assert choice.decode_why.startswith("batches/s: ")
    assert [line.split(":")[0] for line in choice.history][:2] == [
        "decoding on the processor",
        "decoding on the GPU",
    ]
    assert f"  decode: {choice.decode} ({choice.decode_why})" in str(loader).splitlines()


def test_auto_leaves_the_gpu_to_a_loop_that_never_waits(
    jpegs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_WINDOW", 10), ("_WINDOW_S", 0.1), ("_SKIP", 5)):
        monkeypatch.setattr(balance, name, value)
    monkeypatch.setattr(balance, "_TOLERATED_WAIT", 0.2)
    loader = make(jpegs, sampler=repeated(8 * 30), decode="auto")
    for _ in loader:
        time.sleep(0.05)
    assert loader.choice.decode == "on the processor"
    assert loader.choice.decode_why == "the processor keeps up, the GPU is left to training"
    assert len(loader.choice.history) == 1


def test_verdicts_are_the_engines_statuses() -> None:
    """What a fresh verdict means, as the engine fills it on the device."""
    fresh = torch.full((3,), -1, dtype=torch.int32, device="cuda").cpu().numpy()
    assert _native.statuses_of_verdicts(fresh.view(np.uint32)).tolist() == [0, 0, 0]
