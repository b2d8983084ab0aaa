"""Steps on whole batches, through the loader: the same for any number of workers, after resuming,
and sample by sample.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import slipstream
from slipstream.augment import (
    CenterCrop,
    ColorJitter,
    CutMix,
    GaussianBlur,
    Mixup,
    Normalize,
    PILToTensor,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
    TrivialAugmentWide,
)
from slipstream.augment.lowering import lower
from slipstream.augment.pillow import apply
from slipstream.errors import CorruptDataset, UsageError
from slipstream.loader.engine import Engine
from slipstream.loader.memory import RecycledMemory
from slipstream.loader.on_device import UnfinishedPixels
from slipstream.loader.plan import Task
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.augment import standins
from tests.loader.damage import damage
from tests.loader.made_data import epoch_of
from tests.pictures import jpeg

COUNT, CLASSES, BAD = 23, 3, 2
CROP = [RandomResizedCrop(32), RandomHorizontalFlip()]
NORMALIZE = Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
JITTER = ColorJitter(0.4, 0.4, 0.4, 0.1)
PIPELINES: dict[str, list[Any]] = {
    "array": [*CROP, JITTER, RandomGrayscale(0.3)],
    "bytes": [*CROP, JITTER, PILToTensor(), GaussianBlur(3)],
    "train": [*CROP, JITTER, RandomGrayscale(0.3), ToTensor(), NORMALIZE, RandomErasing(0.5)],
    "floats": [*CROP, ToTensor(), JITTER, GaussianBlur(5), NORMALIZE],
    "rand": [*CROP, RandAugment(), ToTensor()],
    "trivial": [*CROP, TrivialAugmentWide(), ToTensor(torch.bfloat16), NORMALIZE],
    "padded": [Resize((32, 32)), RandomCrop(32, padding=4), RandomHorizontalFlip(), ToTensor()],
    "bins": [*CROP, RandAugment(1, 3, 5), TrivialAugmentWide(3), ToTensor()],
    "half": [*CROP, ToTensor(torch.float16), NORMALIZE],
    "late flip": [
        *CROP,
        GaussianBlur(3),
        RandomHorizontalFlip(),
        ToTensor(torch.float16, torch.channels_last),
        RandomErasing(1.0),
        RandomVerticalFlip(),
    ],
    "blur": [RandomResizedCrop(24), GaussianBlur(3, (0.5, 2.0)), RandomErasing(1.0, value=7)],
}
MIXED = [*CROP, JITTER, ToTensor(), NORMALIZE, Mixup(0.4, CLASSES), CutMix(1.0, CLASSES)]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(COUNT):
        place = folder / f"class{number % CLASSES}"
        place.mkdir(exist_ok=True)
        (place / f"{number:02d}.jpg").write_bytes(jpeg(60 + number, 50, number))
    path = tmp_path_factory.mktemp("packed") / "photos.slip"
    pack_source(open_source(folder), path)
    return path


def make(path: Path, transform: Any, **arguments: Any) -> Any:
    given = {"batch_size": 5, "shuffle": True, "seed": 3, **arguments}
    return slipstream.Loader(slipstream.open_dataset(path), transform=transform, **given)


def unknown(value: Any) -> Any:
    return value


@pytest.mark.parametrize("name", [*PIPELINES, "mixed"])
def test_the_same_for_any_number_of_workers_and_after_resuming(packed: Path, name: str) -> None:
    transform = PIPELINES.get(name, MIXED)
    loader = make(packed, transform)
    assert "native engine" in str(loader)
    epochs = [epoch_of(loader), epoch_of(loader)]
    assert epochs[0] != epochs[1]
    for workers in (1, 2):
        again = make(packed, transform, num_workers=workers)
        assert [epoch_of(again), epoch_of(again)] == epochs
    begun = make(packed, transform)
    list(begun)
    iterator = iter(begun)
    for _ in range(2):
        next(iterator)
    state = begun.state_dict()
    resumed = make(packed, transform, num_workers=2)
    resumed.load_state_dict(state)
    assert epoch_of(resumed) == epochs[1][2:]


@pytest.mark.parametrize("name", PIPELINES)
def test_sample_by_sample_gives_the_same(packed: Path, name: str) -> None:
    transform = PIPELINES[name]
    engine = make(packed, transform)
    expected = [batch["image"] for batch in engine]
    for workers in (0, 2):
        python = make(packed, [*transform, unknown], num_workers=workers)
        assert "as given: unknown" in str(python)
        for one, other in zip(expected, python, strict=True):
            assert one.dtype == other["image"].dtype and torch.equal(one, other["image"])
    engine.set_epoch(0)
    torchs = DataLoader(engine.dataset, batch_sampler=[[4, 7], [20]])
    found = {int(i): engine.dataset[i]["image"] for i in (4, 7, 20)}
    for batch, indices in zip(torchs, [[4, 7], [20]], strict=True):
        for picture, index in zip(batch["image"], indices, strict=True):
            assert torch.equal(picture, torch.as_tensor(found[index]))


@pytest.mark.parametrize("name", [*PIPELINES, "mixed"])
def test_what_is_finished_on_a_device_is_the_same(packed: Path, name: str) -> None:
    """The device is the processor here; tests/gpu has the other one."""
    transform = PIPELINES.get(name, MIXED)
    dataset = make(packed, transform).dataset
    made = []
    for finish in ("here", "on_device"):
        engine = Engine(
            dataset.reader, dataset.lowered, seed=3, threads=1, finish=finish,
            memory=RecycledMemory(keep=2),
        )  # fmt: skip
        made.append(engine.make(Task(0, [4, 7, 20, 3], 4, 0), epoch=1).batch)
    here, there = made
    assert isinstance(there["image"], UnfinishedPixels) and there["image"].nbytes > 0
    moved = there["image"].to(torch.device("cpu"))
    assert torch.equal(moved, here["image"]) and moved.stride() == here["image"].stride()
    assert torch.equal(there["label"], here["label"])


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_and_channels_last(packed: Path, kind: torch.dtype) -> None:
    def pipeline(*arguments: Any, steps: list[Any]) -> list[Any]:
        return [*CROP, *steps, ToTensor(*arguments), NORMALIZE]

    for steps in ([], [JITTER]):
        exact = make(packed, pipeline(steps=steps))
        rounded = make(packed, pipeline(kind, torch.channels_last, steps=steps))
        for one, other in zip(exact, rounded, strict=True):
            assert one["image"].is_contiguous() and one["image"].dtype == torch.float32
            assert other["image"].is_contiguous(memory_format=torch.channels_last)
            assert other["image"].dtype == kind
            assert torch.equal(one["image"].to(kind), other["image"])


def test_a_sample_that_is_substituted_draws_its_own_numbers(packed: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.slip"
    shutil.copytree(packed, path)
    damage(path, "image", [BAD], byte=60)
    transform = [*CROP, JITTER, ToTensor()]
    whole = make(packed, transform, shuffle=False)
    batches = {
        on_error: next(iter(make(path, transform, shuffle=False, on_error=on_error)))["image"]
        for on_error in ("skip", "substitute")
    }
    expected = next(iter(whole))["image"]
    kept = [k for k in range(5) if k != BAD]
    assert torch.equal(batches["skip"], expected[kept])
    assert torch.equal(batches["substitute"][kept], expected[kept])
    assert torch.equal(batches["substitute"][BAD], expected[BAD + 1])


def test_mixed_labels(packed: Path) -> None:
    plain = make(packed, [*CROP, ToTensor()])
    mixed = make(packed, [*CROP, ToTensor(), Mixup(1.0, CLASSES)])
    shares = set()
    for one, other in zip(plain, mixed, strict=True):
        labels = one["label"]
        assert other["label"].shape == (len(labels), CLASSES)
        assert other["label"].dtype == torch.float32
        assert torch.allclose(other["label"].sum(1), torch.ones(len(labels)))
        different = [k for k in range(len(labels)) if labels[k] != labels[k - 1]]
        share = other["label"][different[0], labels[different[0]]]
        images = one["image"] * share + one["image"].roll(1, 0) * (1 - share)
        assert torch.allclose(images, other["image"], atol=1e-6)
        shares.add(float(share))
    assert len(shares) == len(plain)


def test_mixing_what_cannot_be_mixed(packed: Path) -> None:
    tensor = [*CROP, ToTensor()]
    with pytest.raises(UsageError, match=r"num_classes=2, and the field .* holds 2"):
        list(make(packed, [*tensor, Mixup(1.0, 2)]))
    with pytest.raises(UsageError, match='field "key" is a list of 5'):
        list(make(packed, [*tensor, Mixup(1.0, 3, label="key")]))
    with pytest.raises(UsageError, match='mixes the field "y", and samples hold'):
        list(make(packed, [*tensor, CutMix(1.0, 3, "y")]))
    with pytest.raises(UsageError, match=r"Mixup needs whole batches.* bytes before ToTensor"):
        make(packed, [*CROP, Mixup(1.0, 3), ToTensor()])
    with pytest.raises(UsageError, match="CutMix needs whole batches, and from unknown on"):
        make(packed, [*CROP, unknown, CutMix(1.0, 3)])
    with pytest.raises(UsageError, match="unknown runs on one sample at a time"):
        make(packed, [*tensor, Mixup(1.0, 3), unknown])
    loader = make(packed, [*tensor, Mixup(1.0, 3)])
    with pytest.raises(UsageError, match="these samples are read one by one"):
        loader.dataset[0]
    with pytest.raises(UsageError, match="these samples are read one by one"):
        list(make(packed, [*tensor, Mixup(1.0, 3)], collate_fn=list))


def test_the_loader_tells_what_runs_on_batches(packed: Path) -> None:
    loader = make(packed, PIPELINES["train"])
    assert (
        "engine: RandomResizedCrop(32), RandomHorizontalFlip(p=0.5); on whole batches: ColorJitter,"
        " RandomGrayscale(p=0.3), ToTensor, Normalize, RandomErasing(p=0.5)" in str(loader)
    )


def test_our_own_transforms_do_not_fall_to_python_unsaid(packed: Path) -> None:
    transform = [RandomResizedCrop(32), RandomErasing(), CenterCrop(16), ToTensor()]
    with pytest.warns(UserWarning, match="CenterCrop runs in Python, sample by sample") as told:
        loader = make(packed, transform)
        list(loader)
        str(loader)
    assert len(told) == 1 and told[0].filename == __file__
    assert "moves pixels behind" in str(told[0].message)
    assert "Write crops and a resize first" in str(told[0].message)
    make(packed, [RandomResizedCrop(32), RandomErasing(), unknown])  # nobody expects otherwise


class Jitter:
    """torchvision's attributes."""

    def __init__(self) -> None:
        self.brightness, self.contrast, self.saturation, self.hue = (0.6, 1.4), None, None, None


Theirs = type("ColorJitter", (Jitter,), {"__module__": standins.V1, "__call__": unknown})


def test_a_late_flip_runs_on_batches(packed: Path) -> None:
    """Its word is that of an early one: the flips are the same."""
    cases = ((RandomHorizontalFlip(), 3), (standins.v1.RandomHorizontalFlip(), 3))
    cases += ((RandomVerticalFlip(), 2), (standins.v2.RandomVerticalFlip(), 2))
    before = [RandomResizedCrop(32), RandomErasing(1.0)]
    for flip, axis in cases:
        never, always = (make(packed, [*before, type(flip)(p=p), ToTensor()]) for p in (0.0, 1.0))
        loader = make(packed, [*before, flip, ToTensor()])
        assert "native engine" in str(loader)
        assert f"{type(flip).__name__}(p=0.5), ToTensor" in str(loader)
        early = make(packed, [RandomResizedCrop(32), ColorJitter(), flip, ToTensor()])
        plain = make(packed, [RandomResizedCrop(32), ColorJitter(), ToTensor()])
        for one, other, drawn, flipped, upright in zip(
            never, always, loader, early, plain, strict=True
        ):
            assert torch.equal(other["image"], one["image"].flip(axis))
            for k, picture in enumerate(drawn["image"]):
                is_flipped = not torch.equal(flipped["image"][k], upright["image"][k])
                expected = other if is_flipped else one
                assert torch.equal(picture, expected["image"][k])


def test_torchvisions_run_on_batches_and_a_note_says_so(packed: Path) -> None:
    theirs = make(packed, [standins.v1.RandomResizedCrop(32), Theirs(), standins.v1.ToTensor()])
    assert "on whole batches: ColorJitter, ToTensor" in str(theirs)
    assert "note: ColorJitter has our random numbers" in str(theirs)
    ours = make(packed, [RandomResizedCrop(32), ColorJitter(0.4), ToTensor()])
    for one, other in zip(theirs, ours, strict=True):
        assert torch.equal(one["image"], other["image"])
    exact = lower([standins.v1.RandomResizedCrop(32), Theirs()], exact=True)
    assert exact.rest and exact.why == "draws and rounds in its own way"


@pytest.mark.parametrize("name", PIPELINES)
def test_one_picture_by_itself(name: str) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 60, 3), np.uint8))
    torch.manual_seed(0)
    result = slipstream.Augment(*PIPELINES[name])(picture)
    torch.manual_seed(0)
    again = slipstream.Augment(*PIPELINES[name])(picture)
    if name in ("array", "blur"):
        assert isinstance(result, Image.Image) and result.tobytes() == again.tobytes()
        return
    assert result.shape == (3, 32, 32) and torch.equal(result, again)
    assert result.dtype == lower(PIPELINES[name], exact=True).result.dtype or name == "bytes"


def test_one_op_on_a_tensor() -> None:
    picture = torch.rand(3, 20, 30)
    for op in (JITTER, GaussianBlur(3), RandomErasing(1.0), RandAugment(), RandomGrayscale(1.0)):
        assert op(picture).shape == picture.shape and op(picture).dtype == torch.float32
        bytes_ = (picture * 255).to(torch.uint8)
        assert op(bytes_).shape == picture.shape and op(bytes_).dtype == torch.uint8
        assert op(picture.half()).dtype == torch.float16
    with pytest.raises(UsageError, match="mix the pictures of a batch, and this is one"):
        CutMix(1.0, 3)(picture)


def test_a_crop_that_fits_no_picture_is_a_mistake_of_the_transform(packed: Path) -> None:
    """One that fits some of them is a matter of the data."""
    crop = [RandomCrop(56), ToTensor()]
    for arguments in ({}, {"num_workers": 2}, {"collate_fn": list}):
        message = r"Required crop size \(56, 56\) is larger .* nor any other of the 5 samples"
        with pytest.raises(UsageError, match=message):
            list(make(packed, crop, **arguments))
    with pytest.raises(UsageError, match=r"Required crop size .* does not fit this sample:"):
        make(packed, crop).dataset[0]
    wide = [RandomCrop((50, 70)), ToTensor()]
    with pytest.raises(CorruptDataset, match=r"Required crop size .*on_error="):
        list(make(packed, wide, batch_size=COUNT))
    left = list(make(packed, wide, batch_size=COUNT, on_error="skip"))
    assert [len(batch["image"]) for batch in left] == [COUNT - 10]


# Masks, boxes and keypoints.


class Scenes:
    """Pictures with a mask as a picture and as an array, boxes and points."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = np.random.default_rng(index)
        width, height = 40 + index, 30 + 2 * index
        mask = rng.integers(0, 256, (height, width), dtype=np.uint8)
        palette = Image.fromarray(mask).convert("P")
        palette.putdata(mask.flatten().tolist())
        corners = rng.integers(0, 30, (index % 4, 2))
        return {
            "image": Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)),
            "mask": Image.fromarray(mask),
            "classes": palette,
            "depth": rng.integers(0, 1 << 16, (height, width)).astype(np.int32),
            "boxes": np.concatenate([corners, corners + 10], 1).astype(np.float32),
            "points": rng.integers(0, 30, (2, 2)).astype(np.int64),
            "label": index,
        }


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenes") / "scenes.slip"
    fields = dict.fromkeys(Scenes()[1], "auto") | {"depth": "ragged", "boxes": "ragged"}
    slipstream.pack_dataset(Scenes(), path, fields=fields)
    return path


GEOMETRY = [RandomResizedCrop((20, 25)), RandomHorizontalFlip(), RandomVerticalFlip()]
FOLLOWING = slipstream.Augment(
    *GEOMETRY, JITTER, ToTensor(),
    masks=["mask", "classes", "depth"], boxes=["boxes"], keypoints=["points"],
)  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", ["engine", "python"])
def test_masks_boxes_and_points_follow(scenes: Path, workers: int, collate: str) -> None:
    from slipstream import _native

    loader = make(
        scenes, FOLLOWING, batch_size=4, num_workers=workers,
        **({"collate_fn": columns_of} if collate == "python" else {}),
    )  # fmt: skip
    assert "follow the picture" in str(loader) or collate == "python"
    geometry = lower(GEOMETRY, exact=True).geometry
    seen = 0
    for batch in loader:
        assert len(batch["boxes"]) == 4 and batch["points"].shape == (4, 2, 2)
        for name in ("mask", "classes", "depth"):
            assert batch[name].shape == (4, 20, 25)
            assert batch[name].dtype == (torch.int64 if name == "depth" else torch.uint8)
        for k, number in enumerate(batch["label"].tolist()):
            scene = Scenes()[number]
            image = scene["image"]

            def random(op: int, blocks: int, number: int = number) -> Any:
                return _native.philox(3, 0, np.asarray([number], dtype=np.int64), op, blocks)

            windows = geometry.draw([image.width], [image.height], random)
            window = windows.row(0)
            nearest = type(window)(*[*vars(window).values()][:4], "nearest")
            for name in ("mask", "classes"):
                truth = np.asarray(apply(nearest, Image.fromarray(np.asarray(scene[name]))))
                assert (batch[name][k].numpy() == truth).all()
            truth = np.asarray(apply(nearest, Image.fromarray(scene["depth"])))
            assert (batch["depth"][k].numpy() == truth).all()
            for box, moved in zip(scene["boxes"], batch["boxes"][k], strict=True):
                ends = [by_hand(window, box[:2]), by_hand(window, box[2:])]
                limit = np.array([25, 20])
                expected = [
                    *np.clip(np.min(ends, 0), 0, limit),
                    *np.clip(np.max(ends, 0), 0, limit),
                ]
                assert np.allclose(moved, expected, atol=1e-4)
            for point, moved in zip(scene["points"], batch["points"][k], strict=True):
                assert np.allclose(moved, by_hand(window, point), atol=1e-4)
            seen += 1
    assert seen == len(Scenes())


def test_masks_boxes_and_points_follow_late_flips(scenes: Path) -> None:
    names = {"masks": ["mask", "classes", "depth"], "boxes": ["boxes"], "keypoints": ["points"]}
    flips = [RandomHorizontalFlip(), RandomVerticalFlip()]
    crop, erase = RandomResizedCrop((20, 25)), RandomErasing(1.0)
    # The place of a flip in the pipeline chooses its numbers.
    early = slipstream.Augment(crop, ColorJitter(), *flips, ToTensor(), **names)
    late = slipstream.Augment(crop, erase, *flips, ToTensor(), **names)
    for workers in (0, 2):
        for one, other in zip(
            make(scenes, early, batch_size=4),
            make(scenes, late, batch_size=4, num_workers=workers),
            strict=True,
        ):
            same = (one["image"] == other["image"]).float().mean(dim=(1, 2, 3))
            assert (same > 0.5).all(), "but for the box"
            for name in ("mask", "classes", "depth", "points"):
                assert torch.equal(one[name], other[name]), name
            assert all(map(torch.equal, one["boxes"], other["boxes"]))


def columns_of(samples: list[Any]) -> dict[str, Any]:
    """Ragged boxes as they are, everything else stacked."""
    columns: dict[str, Any] = {"boxes": [sample["boxes"] for sample in samples]}
    for name in ("mask", "classes", "depth", "points"):
        columns[name] = torch.stack([sample[name] for sample in samples])
    columns["label"] = torch.tensor([sample["label"] for sample in samples])
    return columns


def by_hand(window: Any, point: Any) -> Any:
    x = (point[0] - window.box[0]) * window.resized[0] / window.box[2] - window.resized[2]
    y = (point[1] - window.box[1]) * window.resized[1] / window.box[3] - window.resized[3]
    return [
        window.size[0] - x if window.flips & 1 else x, window.size[1] - y if window.flips & 2 else y
    ]  # fmt: skip


def test_fields_that_cannot_follow(scenes: Path) -> None:
    def first(**names: Any) -> Any:
        return next(iter(make(scenes, slipstream.Augment(*GEOMETRY, **names))))

    with pytest.raises(UsageError, match='"nose" is to follow the picture, and samples hold'):
        first(keypoints=["nose"])
    with pytest.raises(UsageError, match=r'field "points" is .*\[2, 2\], expected \[K, 4\]'):
        first(boxes=["points"])
    with pytest.raises(UsageError, match=r'field "label" is .*, expected \[K, 2\]'):
        first(keypoints=["label"])
    with pytest.raises(UsageError, match=r'mask "boxes" is torch\.float32'):
        first(masks=["boxes"])
    with pytest.raises(UsageError, match="there is no picture"):
        first(masks=["image", "mask", "classes"])


def test_a_mask_of_another_size_or_kind_is_told(tmp_path: Path) -> None:
    sizes = [(40, 30), (40, 31)]
    image = Image.new("RGB", (40, 30))
    scenes = [{"image": image, "mask": Image.new("L", size)} for size in sizes]
    slipstream.pack_dataset(scenes, tmp_path / "sizes.slip", fields=["image", "mask"])
    transform = slipstream.Augment(Resize((8, 8)), masks=["mask"])
    with pytest.raises(CorruptDataset, match='field "mask" is 40 x 31, its picture 40 x 30'):
        list(make(tmp_path / "sizes.slip", transform))
    left = list(make(tmp_path / "sizes.slip", transform, on_error="skip"))
    assert len(left) == 1 and left[0]["mask"].shape == (1, 8, 8)
    coloured = [{"image": image, "mask": image}]
    slipstream.pack_dataset(coloured, tmp_path / "rgb.slip", fields=["image", "mask"])
    with pytest.raises(CorruptDataset, match="a pixel has more than one number"):
        list(make(tmp_path / "rgb.slip", transform))
