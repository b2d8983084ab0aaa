"""`slipstream demo`"""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE = 224
_ROUNDS = 3


def demo(
    count: Annotated[int, typer.Option(min=8, help="Number of photo-like JPEGs to make.")] = 200,
) -> None:
    """Make photo-like JPEGs, pack and verify them, decode crops, and print what was measured."""
    with tempfile.TemporaryDirectory(prefix="slipstream-demo-") as place:
        _run(Path(place), count)


def _run(place: Path, count: int) -> None:
    from slipstream.cli.photos import write_photos
    from slipstream.cli.progress import format_bytes
    from slipstream.pack.pack import pack_source
    from slipstream.pack.sources.detect import open_source
    from slipstream.store.dataset import open_dataset
    from slipstream.store.verify import verify_dataset

    print(f"Making {count} photo-like JPEGs …")
    write_photos(place / "photos", count)
    report = pack_source(open_source(place / "photos"), place / "photos.slip")
    growth = report.packed_bytes / (report.source_bytes or 1) - 1
    print(
        f"Packed {report.samples} samples, {format_bytes(report.packed_bytes)} ({growth:+.1%}),"
        f" in {report.seconds:.1f} s: the same JPEG coefficients, cut into tiles."
    )
    problems = list(verify_dataset(place / "photos.slip"))
    if problems:
        raise InternalError(f"The dataset just packed is damaged: {problems[0]}.")
    print("Verified: every checksum is right.")
    dataset = open_dataset(place / "photos.slip")
    files = [(place / "photos" / sample["key"]).read_bytes() for sample in _keys(dataset)]
    boxes = _random_boxes(dataset)
    _compare(dataset, files, boxes)
    print(f"Compared: {count} random crops, resized to {_SIZE} x {_SIZE}, equal Pillow's pixels.\n")
    _print_table(_measure(dataset, files, boxes), len(files))
    print("\nNext: slipstream pack YOUR_FOLDER train.slip")


def _keys(dataset: Any) -> Any:
    from slipstream.store.dataset import open_dataset

    return open_dataset(dataset.path, fields=["key"])


def _random_boxes(dataset: Any) -> Any:
    """Boxes as RandomResizedCrop draws them: 8 to 100 % of the area, sides from 3:4 to 4:3."""
    import numpy as np

    random = np.random.default_rng(0)
    name = dataset.picture_field()
    widths, heights = dataset.column(name, "width"), dataset.column(name, "height")
    boxes = []
    for width, height in zip(widths.tolist(), heights.tolist(), strict=True):
        side = (width * height * random.uniform(0.08, 1.0)) ** 0.5
        stretch = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3))) ** 0.5
        w, h = min(width, max(1, round(side * stretch))), min(height, max(1, round(side / stretch)))
        x, y = random.integers(0, width - w + 1), random.integers(0, height - h + 1)
        boxes.append((int(x), int(y), w, h))
    return np.asarray(boxes, dtype=np.int32)


def _compare(dataset: Any, files: list[bytes], boxes: Any) -> None:
    import numpy as np

    from slipstream.store.images import decode_images

    pixels, status = decode_images(dataset, np.arange(len(files)), boxes, _SIZE)
    for number, (data, box) in enumerate(zip(files, boxes.tolist(), strict=True)):
        if status[number] != 0 or not np.array_equal(pixels[number], _by_pillow(data, box)):
            raise InternalError(f"Sample {number}, box {box}: pixels differ from Pillow's.")


def _by_pillow(data: bytes, box: list[int]) -> Any:
    """Decode the whole picture, then crop and resize."""
    import io

    import numpy as np
    from PIL import Image

    x, y, width, height = box
    with Image.open(io.BytesIO(data)) as picture:
        crop = picture.convert("RGB").crop((x, y, x + width, y + height))
    return np.asarray(crop.resize((_SIZE, _SIZE), Image.Resampling.BILINEAR))


def _measure(dataset: Any, files: list[bytes], boxes: Any) -> list[tuple[str, float, float]]:
    """(threads, seconds of Pillow, seconds of the engine) for one thread and for all, best of
    rounds.
    """
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from slipstream.cpu import usable_cores
    from slipstream.store.images import decode_images

    numbers, listed = np.arange(len(files)), boxes.tolist()
    out = np.empty((len(files), _SIZE, _SIZE, 3), dtype=np.uint8)
    rows = []
    for threads in sorted({1, usable_cores()}):
        with ThreadPoolExecutor(threads) as pool:

            def whole(pool: ThreadPoolExecutor = pool) -> None:
                list(pool.map(_by_pillow, files, listed))

            def crops(threads: int = threads) -> None:
                decode_images(dataset, numbers, boxes, _SIZE, out=out, threads=threads)

            # Interleaved, so that a busy moment of the machine hits both alike.
            pairs = [(_seconds(whole), _seconds(crops)) for _ in range(_ROUNDS)]
        rows.append((str(threads), min(p[0] for p in pairs), min(p[1] for p in pairs)))
    return rows


def _seconds(work: "Callable[[], None]") -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _print_table(rows: list[tuple[str, float, float]], count: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Random crop of a JPEG, resized to {_SIZE} x {_SIZE}, in images/s")
    for name in (
        "faster by",
        "threads",
        "Slipstream (tiles of the crop)",
        "Pillow (whole picture)",
    ):
        table.add_column(name, justify="right")
    for threads, pillow_s, engine_s in rows:
        ratio, engine, pillow = pillow_s / engine_s, count / engine_s, count / pillow_s
        table.add_row(f"{ratio:.1f} x", threads, f"{engine:,.0f}", f"{pillow:,.0f}")
    Console().print(table)
