"""Crops of packed pictures against Pillow, byte for byte."""

import io
import multiprocessing
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch.utils.data
from PIL import Image

import slipstream
from slipstream import _native
from slipstream.errors import CorruptDataset, UsageError
from slipstream.pack.pack import pack_source
from slipstream.pack.pictures import PictureOptions
from slipstream.pack.sources.detect import open_source
from slipstream.store.dataset import Dataset
from slipstream.store.images import (
    FILTERS,
    decode_images,
    decode_rows,
    decode_whole,
    open_files,
    status_text,
)
from tests.pictures import png, write_flat


def by_pillow(
    data: bytes, box: tuple[int, int, int, int], size: tuple[int, int], filter: int, flip: int
) -> np.ndarray:
    x, y, width, height = box
    with Image.open(io.BytesIO(data)) as picture:
        crop = picture.convert("RGB").crop((x, y, x + width, y + height))
    result = np.asarray(crop.resize(size, Image.Resampling(filter)))
    result = result[:, ::-1] if flip & 1 else result
    return result[::-1] if flip & 2 else result


def window_by_pillow(
    data: bytes, box: list[int], window: list[int], size: tuple[int, int], filter: int, flip: int
) -> np.ndarray:
    full_width, full_height, left, top = window
    whole = by_pillow(data, box, (full_width, full_height), filter, 0)
    part = whole[top : top + size[1], left : left + size[0]]
    part = part[:, ::-1] if flip & 1 else part
    return part[::-1] if flip & 2 else part


def random_windows(size: tuple[int, int], count: int, random: np.random.Generator) -> np.ndarray:
    beyond = random.integers(0, 40, (count, 2))
    return np.concatenate([beyond + size, random.integers(0, beyond + 1)], axis=1)


def random_boxes(dataset: Dataset, random: np.random.Generator) -> np.ndarray:
    boxes = []
    sizes = [dataset.column("image", name).tolist() for name in ("width", "height")]
    for width, height in zip(*sizes, strict=True):
        w, h = int(random.integers(1, width + 1)), int(random.integers(1, height + 1))
        x, y = int(random.integers(0, width - w + 1)), int(random.integers(0, height - h + 1))
        boxes.append((x, y, w, h))
    return np.asarray(boxes)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("threads", [1, 3])
def test_crops_equal_pillow(
    mixed_dataset: Path, mixed_folder: Path, filter: str, threads: int
) -> None:
    dataset = slipstream.open_dataset(mixed_dataset)
    numbers = np.arange(len(dataset))
    random = np.random.default_rng(threads)
    for size in ((24, 31), (7, 5), (90, 120)):
        boxes = random_boxes(dataset, random)
        flips = random.integers(0, 4, len(dataset))
        pixels, status = decode_images(
            dataset, numbers, boxes, size, filter=filter, flips=flips, threads=threads
        )
        assert status.tolist() == [0] * len(dataset)
        for k, sample in enumerate(dataset):
            data = (mixed_folder / sample["key"]).read_bytes()
            expected = by_pillow(data, boxes[k].tolist(), size, FILTERS[filter], int(flips[k]))
            np.testing.assert_array_equal(pixels[k], expected, err_msg=sample["key"])


@pytest.mark.parametrize("filter", FILTERS)
def test_windows_of_resized_crops_equal_pillow(
    mixed_dataset: Path, mixed_folder: Path, filter: str
) -> None:
    dataset = slipstream.open_dataset(mixed_dataset)
    files = [mixed_folder / sample["key"] for sample in dataset]
    random = np.random.default_rng(5)
    for size in ((24, 31), (7, 5), (60, 90)):
        boxes = random_boxes(dataset, random)
        flips = random.integers(0, 4, len(dataset))
        windows = random_windows(size, len(dataset), random)
        options = {"filter": filter, "flips": flips, "resized": windows}
        from_tiles = decode_images(dataset, np.arange(len(dataset)), boxes, size, **options)
        from_files = decode_rows(open_files(files).rows, boxes, size, **options)
        for pixels, status in (from_tiles, from_files):
            assert status.tolist() == [0] * len(dataset)
            for k, file in enumerate(files):
                expected = window_by_pillow(
                    file.read_bytes(), boxes[k].tolist(), windows[k].tolist(), size,
                    FILTERS[filter], int(flips[k]),
                )  # fmt: skip
                np.testing.assert_array_equal(pixels[k], expected, err_msg=file.name)


def test_windows_outside_cost_their_sample_only(mixed_dataset: Path) -> None:
    dataset = slipstream.open_dataset(mixed_dataset)
    good = (8, 8, 0, 0)
    bad = [
        (7, 8, 0, 0),
        (8, 7, 0, 0),
        (9, 9, 2, 0),
        (9, 9, 0, -1),
        (1 << 31, 9, 0, 0),
        (0, 0, 0, 0),
    ]
    windows = [good, *bad, good]
    for number in (0, 8):  # a tile record and a PNG
        boxes = [(0, 0, 5, 5)] * len(windows)
        _, status = decode_images(dataset, [number] * len(windows), boxes, 8, resized=windows)
        assert status.tolist() == [0, *[_native.STATUS_BOX] * len(bad), 0]


def test_files_that_were_never_packed(mixed_folder: Path) -> None:
    files = sorted(path for path in mixed_folder.rglob("*") if path.is_file())
    for threads in (1, 3):
        opened = open_files([str(files[0]), *files[1:]], threads)
        rows = opened.rows
        assert opened.errors == {}
        for k, file in enumerate(files):
            assert rows.maps[k].tobytes() == file.read_bytes()
            with Image.open(file) as picture:
                assert (rows.widths[k], rows.heights[k]) == picture.size
        boxes = np.stack([rows.widths * 0, rows.heights * 0, rows.widths, rows.heights], axis=1)
        pixels, status = decode_rows(rows, boxes, (20, 10), threads=threads)
        assert not status.any()
        for k, file in enumerate(files):
            expected = by_pillow(file.read_bytes(), boxes[k].tolist(), (20, 10), 2, 0)
            np.testing.assert_array_equal(pixels[k], expected, err_msg=file.name)


def test_files_that_cannot_be_opened_say_why(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 1) / "000.jpg"
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "short.png").write_bytes(png()[:20])
    (tmp_path / "cut.jpg").write_bytes(source.read_bytes()[:900])
    os.mkfifo(tmp_path / "pipe.jpg")
    paths: list[str | Path] = [
        source, tmp_path / "none.jpg", tmp_path, tmp_path / "text.jpg", tmp_path / "empty.jpg",
        tmp_path / "pipe.jpg", "nul\0byte.jpg", tmp_path / "short.png", tmp_path / "cut.jpg",
    ]  # fmt: skip
    opened = open_files(paths)
    errors = opened.errors
    assert list(errors) == [1, 2, 3, 4, 5, 6, 7]
    assert errors[1] == "No such file or directory"
    assert errors[2] == "Is a directory"
    assert errors[3] == "not a picture"
    assert errors[4] == "file is empty"
    assert errors[5] == errors[6] == "Invalid argument"
    assert errors[7].startswith("not a picture")
    boxes = [(0, 0, 8, 8)] * len(paths)
    pixels, status = decode_rows(opened.rows, boxes, 8)
    assert [bool(number) for number in status] == [False] + [True] * 8
    assert not pixels[1:].any()
    assert open_files([]).errors == {}


def test_a_whole_file_is_decoded(tmp_path: Path) -> None:
    path = write_flat(tmp_path / "photos", 1) / "000.jpg"
    whole = decode_whole(open_files([path]).rows, "here")
    with Image.open(path) as picture:
        np.testing.assert_array_equal(whole, np.asarray(picture))


def test_descriptors_are_closed(tmp_path: Path) -> None:
    path = write_flat(tmp_path / "photos", 1) / "000.jpg"
    names = [os.fsencode(name) for name in (path, tmp_path, tmp_path / "none")]
    _native.read_files(names, 2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    _native.read_files(names * 50, 2)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_that_grows_and_shrinks_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    stop = threading.Event()

    def write() -> None:
        with path.open("wb") as file:
            while not stop.is_set():
                for size in (3, 70_000, 300_000, 5):
                    file.seek(0)
                    file.write(b"x" * size)
                    file.truncate()
                    file.flush()

    path.write_bytes(b"x")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            (data,), _, errnos = _native.read_files([os.fsencode(path)], 1)
            assert errnos.tolist() == [0]
            assert data.size <= 300_000 and (data == ord("x")).all()
    finally:
        stop.set()
        writer.join()


def test_paths_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match=r"os\.fsencode"):
        _native.read_files(["text"], 1)


def test_only_some_samples_into_given_memory(mixed_dataset: Path, mixed_folder: Path) -> None:
    dataset = slipstream.open_dataset(mixed_dataset)[4:]
    out = np.zeros((2, 16, 16, 3), dtype=np.uint8)
    found, status = decode_images(dataset, [-1, 0], [(0, 0, 20, 20)] * 2, 16, out=out)
    assert found is out
    assert not status.any()
    for k in (0, 1):
        data = (mixed_folder / dataset[[-1, 0][k]]["key"]).read_bytes()
        np.testing.assert_array_equal(out[k], by_pillow(data, (0, 0, 20, 20), (16, 16), 2, 0))


def test_bad_boxes_cost_their_sample_only(mixed_dataset: Path) -> None:
    dataset = slipstream.open_dataset(mixed_dataset)
    png_number = 8
    good = (0, 0, 5, 5)
    bad = [(0, 0, 0, 5), (-1, 0, 5, 5), (0, 0, 5, 500), (1 << 31, 0, 5, 5)]
    for number in (0, png_number):
        boxes = [good, *bad, good]
        _, status = decode_images(dataset, [number] * 6, boxes, 8, threads=1)
        assert status.tolist() == [0, *[_native.STATUS_BOX] * 4, 0]


def test_damage_costs_its_sample_only(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 4)
    (source / "002.png").write_bytes(png())
    pack_source(open_source(source), tmp_path / "a.slip")
    rows = slipstream.open_dataset(tmp_path / "a.slip").rows("image", range(5))
    path = tmp_path / "a.slip" / "00000.slip"
    data = bytearray(path.read_bytes())
    for k in (1, 3):  # a tile record and the PNG
        data[int(rows.offsets[k]) + 60] ^= 4
    path.write_bytes(data)
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    out = np.full((5, 8, 8, 3), 7, dtype=np.uint8)
    _, status = decode_images(dataset, range(5), [(0, 0, 9, 9)] * 5, 8, out=out)
    assert [bool(row.any()) for row in out] == [True, False, True, False, True]
    with pytest.raises(CorruptDataset, match="picture cannot be decoded: checksum does not match"):
        dataset[1]
    assert status.tolist() == [0, _native.STATUS_CHECKSUM, 0, _native.STATUS_CHECKSUM, 0]


def test_a_dataset_of_pixels_says_so(tmp_path: Path) -> None:
    source = open_source(write_flat(tmp_path / "photos", 1))
    pack_source(source, tmp_path / "a.slip", pictures=PictureOptions(decoded=True))
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    for field in (None, "image"):
        with pytest.raises(UsageError, match=r"packed with --decoded.*slice those"):
            decode_images(dataset, [0], [(0, 0, 1, 1)], 8, field=field)
    with pytest.raises(UsageError, match="holds text, not pictures"):
        decode_images(dataset, [0], [(0, 0, 1, 1)], 8, field="key")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0, expected"),
        ({"size": (8, -1)}, r"size is \(8, -1\)"),
        ({"size": 2.5}, r"size is 2\.5"),
        ({"flips": [4]}, "flips are outside 0 to 3"),
        ({"flips": [-1]}, "flips are outside 0 to 3"),
        ({"threads": 0}, "threads is 0, expected at least 1"),
    ],
)
def test_values_out_of_range_are_named(
    mixed_dataset: Path, options: dict[str, object], message: str
) -> None:
    dataset = slipstream.open_dataset(mixed_dataset)
    with pytest.raises(UsageError, match=message):
        decode_images(dataset, [0], [(0, 0, 1, 1)], **{"size": 8, **options})  # type: ignore[arg-type]


def test_status_text_explains() -> None:
    assert status_text(_native.STATUS_CHECKSUM) == "checksum does not match"


def test_wrong_arguments_are_named(mixed_dataset: Path) -> None:
    dataset = slipstream.open_dataset(mixed_dataset)
    with pytest.raises(UsageError, match=r"boxes are int64\[1, 4\], expected integers \[2, 4\]"):
        decode_images(dataset, [0, 1], [(0, 0, 1, 1)], 8)
    with pytest.raises(UsageError, match=r"out is uint8\[1, 8, 9, 3\], expected"):
        out = np.empty((1, 8, 9, 3), dtype=np.uint8)
        decode_images(dataset, [0], [(0, 0, 1, 1)], 8, out=out)
    with pytest.raises(UsageError, match="Unknown filter 'cubic'"):
        decode_images(dataset, [0], [(0, 0, 1, 1)], 8, filter="cubic")
    with pytest.raises(UsageError, match="holds int, not pictures"):
        decode_images(dataset, [0], [(0, 0, 1, 1)], 8, field="label")
    with pytest.raises(IndexError):
        decode_images(dataset, [12], [(0, 0, 1, 1)], 8)
    pixels, status = decode_images(dataset, [], [], 8)
    assert (pixels.shape, len(status)) == ((0, 8, 8, 3), 0)


class Crops(torch.utils.data.Dataset):
    """Decodes with threads of its own inside a loader's worker."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> np.ndarray:
        numbers = range(4 * index, 4 * index + 4)
        return decode_images(self.dataset, numbers, [(0, 0, 1, 1)] * 4, 8, threads=2)[0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_threads_work_in_child_processes(mixed_dataset: Path, method: str) -> None:
    """Also after a fork of a process whose own threads are already running."""
    dataset = slipstream.open_dataset(mixed_dataset)
    here = [Crops(dataset)[k] for k in range(3)]
    context = multiprocessing.get_context(method)
    for _ in range(2 if method == "fork" else 1):
        loader = torch.utils.data.DataLoader(
            Crops(dataset), batch_size=None, num_workers=2, multiprocessing_context=context
        )
        for expected, found in zip(here, loader, strict=True):
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(Crops(dataset)[0], here[0])
