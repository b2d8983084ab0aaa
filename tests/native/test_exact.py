"""The engine's pixels against Pillow's, without tolerance: any picture, crop, target, filter."""

import io
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from slipstream import _native
from slipstream.store.images import FILTERS, pass_order
from tests.native.composer import SAMPLINGS, compose, plane_sizes

sizes = st.integers(1, 40) | st.integers(1, 200)
targets = st.integers(1, 90) | st.integers(1, 300)


def decode(
    data: bytes,
    coding: int,
    box: tuple[int, int, int, int],
    size: tuple[int, int],
    number: int,
    flip: int = 0,
    window: tuple[int, int, int, int] | None = None,
) -> tuple[int, np.ndarray]:
    resized = None if window is None else np.array([window], np.int32)
    out = np.full((1, size[1], size[0], 3), 77, np.uint8)
    status = _native.decode_batch(
        [data], np.zeros(1, np.uint32), np.zeros(1, np.uint64), np.array([len(data)], np.uint64),
        np.array([coding], np.uint8), None, np.array([box], np.int32), np.array([flip], np.uint8),
        resized, out, number, pass_order(), 1,
    )  # fmt: skip
    return int(status[0]), out[0]


def pillow(
    data: bytes,
    box: tuple[int, int, int, int],
    size: tuple[int, int],
    number: int,
    flip: int = 0,
    window: tuple[int, int, int, int] | None = None,
) -> np.ndarray:
    x, y, width, height = box
    picture = Image.open(io.BytesIO(data)).convert("RGB").crop((x, y, x + width, y + height))
    full_width, full_height, left, top = window or (*size, 0, 0)
    picture = picture.resize((full_width, full_height), Image.Resampling(number))
    pixels = np.asarray(picture.crop((left, top, left + size[0], top + size[1])))
    pixels = pixels[:, ::-1] if flip & 1 else pixels
    return pixels[::-1] if flip & 2 else pixels


def record_of(data: bytes) -> bytes:
    (rewritten,) = _native.rewrite_jpegs([data], False, 1)
    assert rewritten.status == _native.STATUS_OK, rewritten.message
    return rewritten.record


def noise(width: int, height: int, seed: int, smooth: bool, channels: int = 3) -> np.ndarray:
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 256, (height, width, channels), dtype=np.uint8)
    if smooth:
        coarse = pixels[: max(1, height // 8), : max(1, width // 8)]
        planes = [
            Image.fromarray(coarse[..., c]).resize((width, height), Image.Resampling.BICUBIC)
            for c in range(channels)
        ]
        pixels = np.stack([np.asarray(plane) for plane in planes], axis=-1)
    return pixels


@st.composite
def files(draw: Callable) -> bytes:
    """JPEG files of every kind that Pillow writes."""
    width, height = draw(sizes), draw(sizes)
    pixels = noise(width, height, draw(st.integers(0, 2**32)), draw(st.booleans()))
    picture = Image.fromarray(pixels)
    options: dict[str, object] = {
        "quality": draw(st.integers(1, 100)),
        "optimize": draw(st.booleans()),
    }
    if draw(st.integers(0, 5)) == 0:
        picture = picture.convert("L")
    else:
        options["subsampling"] = draw(st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]))
    if draw(st.integers(0, 3)) == 0:
        options["restart_marker_blocks"] = draw(st.integers(1, 9))
    out = io.BytesIO()
    # A buffer that holds any picture at once: Pillow's default is too small for noise.
    out_size = width * height * 12 + 4096
    progressive = draw(st.integers(0, 3)) == 0
    before, ImageFile.MAXBLOCK = ImageFile.MAXBLOCK, max(ImageFile.MAXBLOCK, out_size)
    try:
        picture.save(out, "JPEG", progressive=progressive, **options)
    finally:
        ImageFile.MAXBLOCK = before
    return out.getvalue()


@st.composite
def crops(
    draw: Callable, data: bytes
) -> tuple[tuple[int, int, int, int], tuple[int, int], int, int]:
    """A box inside the picture, a target size, a filter and a flip."""
    full_width, full_height = Image.open(io.BytesIO(data)).size
    width, height = draw(st.integers(1, full_width)), draw(st.integers(1, full_height))
    box = (
        draw(st.integers(0, full_width - width)),
        draw(st.integers(0, full_height - height)),
        width,
        height,
    )
    target = (
        draw(st.just(width) | targets),
        draw(st.just(height) | targets),
    )
    return box, target, draw(st.sampled_from(sorted(FILTERS.values()))), draw(st.integers(0, 3))


exact = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def assert_equal_to_pillow(data: bytes, what: tuple) -> None:
    expected = pillow(data, *what)
    for coding, payload in ((1, record_of(data)), (0, data)):
        status, got = decode(payload, coding, *what)
        assert status == _native.STATUS_OK, (coding, _native.status_text(status))
        np.testing.assert_array_equal(got, expected, err_msg=f"coding {coding} {what}")


@settings(exact, max_examples=1000)
@given(st.data())
def test_any_crop_of_any_file_equals_pillow(data: st.DataObject) -> None:
    file = data.draw(files())
    assert_equal_to_pillow(file, data.draw(crops(file)))


@st.composite
def windows(draw: Callable, data: bytes) -> tuple:
    """A crop, of whose resized picture only a part is wanted."""
    box, full, number, flip = draw(crops(data))
    size = draw(st.integers(1, full[0])), draw(st.integers(1, full[1]))
    left, top = draw(st.integers(0, full[0] - size[0])), draw(st.integers(0, full[1] - size[1]))
    return box, size, number, flip, (*full, left, top)


@settings(exact, max_examples=1000)
@given(st.data())
def test_any_window_of_any_resized_crop_equals_pillow(data: st.DataObject) -> None:
    file = data.draw(files())
    assert_equal_to_pillow(file, data.draw(windows(file)))


@pytest.mark.parametrize("filter_name", FILTERS)
def test_resize_and_center_crop_equals_pillow(filter_name: str) -> None:
    for width, height in ((500, 375), (375, 500), (90, 80), (224, 300), (1000, 20)):
        out = io.BytesIO()
        Image.fromarray(noise(width, height, 1, smooth=True)).save(out, "JPEG", quality=92)
        shorter = min(width, height)
        full = max(256, 256 * width // shorter), max(256, 256 * height // shorter)
        window = (*full, (full[0] - 224) // 2, (full[1] - 224) // 2)
        number = FILTERS[filter_name]
        what = ((0, 0, width, height), (224, 224), number, 1, window)
        assert_equal_to_pillow(out.getvalue(), what)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("filter_name", FILTERS)
def test_a_window_is_a_part_of_the_whole_in_every_pass_order(filter_name: str, order: int) -> None:
    """Also in those of Pillows that are not installed."""
    number = FILTERS[filter_name]
    for size, full in (((40, 300), (30, 50)), ((9, 1000), (20, 99)), ((200, 160), (90, 90))):
        out = io.BytesIO()
        Image.fromarray(noise(*size, seed=2, smooth=True)).save(out, "JPEG")
        whole = np.empty((full[1], full[0], 3), np.uint8)
        _native.resize(np.asarray(Image.open(out)), whole, number, order)
        part = np.empty((1, 20, 15, 3), np.uint8)
        status = _native.decode_batch(
            [out.getvalue()], np.zeros(1, np.uint32), np.zeros(1, np.uint64),
            np.array([out.tell()], np.uint64), np.zeros(1, np.uint8), None,
            np.array([(0, 0, *size)], np.int32), np.zeros(1, np.uint8),
            np.array([(*full, 5, 11)], np.int32), part, number, order, 1,
        )  # fmt: skip
        assert status.tolist() == [0]
        np.testing.assert_array_equal(part[0], whole[11:31, 5:20])


@pytest.mark.parametrize(
    "window",
    [
        (7, 20, 0, 0),
        (20, 7, 0, 0),
        (20, 20, 13, 0),
        (20, 20, 0, 13),
        (20, 20, -1, 0),
        (20, 20, 0, -1),
        (0, 0, 0, 0),
        (2**31 - 1, 20, 0, 0),
        (20, 20, 2**31 - 1, 2**31 - 1),
        (-(2**31), -(2**31), -(2**31), -(2**31)),
    ],
)
def test_a_window_outside_the_resized_crop_is_a_status(window: tuple) -> None:
    file = _plain_jpeg(0)
    for coding, payload in ((1, record_of(file)), (0, file)):
        for number in FILTERS.values():
            status, _ = decode(payload, coding, (0, 0, 50, 50), (8, 8), number, 0, window)
            assert status == _native.STATUS_BOX


@settings(exact, max_examples=100)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@given(data=st.data())
def test_every_subsampling_equals_pillow(sampling: str, data: st.DataObject) -> None:
    luma = SAMPLINGS[sampling]
    size = data.draw(sizes), data.draw(sizes)
    seed = data.draw(st.integers(0, 2**32))
    smooth = data.draw(st.booleans())
    planes = [
        noise(w, h, seed + c, smooth, 1)[..., 0] for c, (w, h) in enumerate(plane_sizes(size, luma))
    ]
    file = compose(planes, size, luma, data.draw(st.integers(5, 100)))
    what = data.draw(crops(file) | windows(file))
    assert_equal_to_pillow(file, what)
    # Exported, the same picture is one interleaved scan: the engine's own way of reading files.
    assert_equal_to_pillow(_native.export_jpeg(record_of(file)), what)


@pytest.mark.long
@pytest.mark.timeout(600)
@settings(exact, max_examples=20_000, derandomize=False)
@given(st.data())
def test_sweep_of_crops_equals_pillow(data: st.DataObject) -> None:
    file = data.draw(files())
    assert_equal_to_pillow(file, data.draw(crops(file) | windows(file)))


@pytest.mark.parametrize("filter_name", FILTERS)
@pytest.mark.parametrize(
    ("size", "target"),
    [
        ((900, 40), (13, 40)),
        ((1200, 700), (64, 48)),
        ((40, 1500), (224, 7)),
        ((3, 2), (301, 299)),
        ((5000, 3), (7, 3)),
    ],
)
def test_extreme_scales_equal_pillow(
    filter_name: str, size: tuple[int, int], target: tuple[int, int]
) -> None:
    pixels = noise(*size, seed=3, smooth=False)
    out = np.empty((target[1], target[0], 3), np.uint8)
    number = FILTERS[filter_name]
    _native.resize(np.ascontiguousarray(pixels), out, number, pass_order())
    expected = np.asarray(Image.fromarray(pixels).resize(target, Image.Resampling(number)))
    np.testing.assert_array_equal(out, expected)


@settings(exact, max_examples=300)
@given(st.data())
def test_resize_equals_pillow(data: st.DataObject) -> None:
    size, target = (data.draw(sizes), data.draw(sizes)), (data.draw(targets), data.draw(targets))
    pixels = noise(*size, seed=data.draw(st.integers(0, 2**32)), smooth=False)
    number = data.draw(st.sampled_from(sorted(FILTERS.values())))
    out = np.empty((target[1], target[0], 3), np.uint8)
    _native.resize(np.ascontiguousarray(pixels), out, number, pass_order())
    expected = np.asarray(Image.fromarray(pixels).resize(target, Image.Resampling(number)))
    np.testing.assert_array_equal(out, expected, err_msg=f"{size} -> {target}, filter {number}")


@settings(exact, max_examples=120)
@given(files())
def test_coefficients_survive_the_rewrite(file: bytes) -> None:
    before = _native.coefficients(file)
    record = record_of(file)
    exported = _native.export_jpeg(record)
    for after in (_native.coefficients(record), _native.coefficients(exported)):
        assert len(after) == len(before)
        for (blocks, quant), (blocks_after, quant_after) in zip(before, after, strict=True):
            np.testing.assert_array_equal(blocks, blocks_after)
            np.testing.assert_array_equal(quant, quant_after)
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(exported)).convert("RGB")),
        np.asarray(Image.open(io.BytesIO(file)).convert("RGB")),
    )


def test_threads_give_the_same_pixels_and_one_status_each() -> None:
    data = [record_of(_plain_jpeg(seed)) for seed in range(12)]
    data[5] = data[5][:-40]  # damaged: costs this sample only
    count = len(data)
    batches = []
    for threads in (1, 2, 5):
        out = np.zeros((count, 50, 60, 3), np.uint8)
        status = _native.decode_batch(
            data, np.arange(count, dtype=np.uint32), np.zeros(count, np.uint64),
            np.array([len(d) for d in data], np.uint64), np.ones(count, np.uint8), None,
            np.tile(np.array([3, 5, 90, 70], np.int32), (count, 1)), np.zeros(count, np.uint8),
            None, out, FILTERS["bilinear"], pass_order(), threads,
        )  # fmt: skip
        assert [i for i in range(count) if status[i] != _native.STATUS_OK] == [5]
        out[5] = 0
        batches.append(out)
    np.testing.assert_array_equal(batches[0], batches[1])
    np.testing.assert_array_equal(batches[0], batches[2])


def _plain_jpeg(seed: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(noise(120, 100, seed, smooth=True)).save(out, "JPEG", quality=90)
    return out.getvalue()


@pytest.mark.parametrize(
    "box", [(0, 0, 0, 5), (-1, 0, 5, 5), (0, 0, 121, 5), (0, 96, 5, 5), (119, 99, 2**31 - 1, 1)]
)
def test_a_box_outside_the_picture_is_a_status(box: tuple[int, int, int, int]) -> None:
    file = _plain_jpeg(0)
    for coding, payload in ((1, record_of(file)), (0, file)):
        assert decode(payload, coding, box, (8, 8), FILTERS["bilinear"])[0] == _native.STATUS_BOX


def test_a_checksum_that_does_not_match_is_a_status() -> None:
    record = record_of(_plain_jpeg(0))
    out = np.zeros((1, 8, 8, 3), np.uint8)
    status = _native.decode_batch(
        [record], np.zeros(1, np.uint32), np.zeros(1, np.uint64),
        np.array([len(record)], np.uint64), np.ones(1, np.uint8),
        np.array([_native.crc32c(record) ^ 1], np.uint32), np.array([[0, 0, 9, 9]], np.int32),
        np.zeros(1, np.uint8), None, out, FILTERS["box"], pass_order(), 1,
    )  # fmt: skip
    assert status[0] == _native.STATUS_CHECKSUM


@settings(exact, max_examples=300)
@given(data=st.data())
def test_crops_of_damaged_files_equal_pillow_or_are_left_to_it(data: st.DataObject) -> None:
    """A crop may end above the damage, on it or below: no wrong pixel may pass for a right one."""
    options = {"quality": 90, "restart_marker_blocks": data.draw(st.sampled_from([0, 3, 8]))}
    out = io.BytesIO()
    Image.fromarray(noise(96, 96, data.draw(st.integers(0, 99)), smooth=True)).save(
        out, "JPEG", **options
    )
    file = out.getvalue()
    start = file.index(b"\xff\xda") + 14
    cut = data.draw(st.integers(start, len(file) - 2))
    gone = data.draw(st.integers(1, 400))
    damaged = (
        file[:cut] + (file[cut + gone : -2] if data.draw(st.booleans()) else b"") + b"\xff\xd9"
    )
    what = data.draw(crops(file))
    status, got = decode(damaged, 0, *what)
    if status != _native.STATUS_OK:
        return
    np.testing.assert_array_equal(got, pillow(damaged, *what), err_msg=f"{what}")


def test_output_that_would_be_copied_is_refused() -> None:
    file = _plain_jpeg(0)
    out = np.zeros((1, 8, 16, 3), np.uint8)[:, :, ::2]
    with pytest.raises(TypeError):
        _native.decode_batch(
            [file], np.zeros(1, np.uint32), np.zeros(1, np.uint64),
            np.array([len(file)], np.uint64), np.zeros(1, np.uint8), None,
            np.array([[0, 0, 9, 9]], np.int32), np.zeros(1, np.uint8), None, out, 2,
            pass_order(), 1,
        )  # fmt: skip


def test_a_daemon_thread_in_native_code_does_not_spoil_the_exit() -> None:
    script = """
import threading
from slipstream import _native
data = bytes(50_000_000)
def work():
    while True:
        _native.crc32c(data)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == 0


def test_native_code_runs_in_exit_handlers_whichever_thread_imported_it() -> None:
    script = """
import atexit, threading
def late():
    from slipstream import _native
    assert _native.crc32c(b"123456789") == 0xE3069283
atexit.register(late)  # runs after the hook of the extension, which is registered later
worker = threading.Thread(target=lambda: __import__("slipstream._native"))
worker.start()
worker.join()
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == 0


def test_what_follows_the_end_of_a_jpeg_is_counted() -> None:
    (rewritten,) = _native.rewrite_jpegs([_plain_jpeg(0) + bytes(300)], False, 1)
    assert (rewritten.status, rewritten.trailing_bytes) == (_native.STATUS_OK, 300)
