"""Synthetic pictures for tests: photo-like, in every flavour that a folder of pictures may hold."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from slipstream.cli.photos import make_photo


def photo(width: int = 100, height: int = 80, seed: int = 0) -> Image.Image:
    return make_photo(width, height, np.random.default_rng(seed))


def jpeg(width: int = 100, height: int = 80, seed: int = 0, **options: object) -> bytes:
    mode = str(options.pop("mode", "RGB"))
    return _save(photo(width, height, seed).convert(mode), "JPEG", **{"quality": 90, **options})


def png(width: int = 100, height: int = 80, seed: int = 0, mode: str = "RGB") -> bytes:
    return _save(photo(width, height, seed).convert(mode), "PNG")


def webp(width: int = 100, height: int = 80, seed: int = 0) -> bytes:
    return _save(photo(width, height, seed), "WEBP", lossless=True)


def turned_jpeg(orientation: int, width: int = 96, height: int = 64) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(width, height, orientation, exif=exif.tobytes())


def write_flat(folder: Path, count: int, *, width: int = 100, height: int = 80) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:03d}.jpg").write_bytes(jpeg(width + number, height, number))
    return folder


def write_mixed(folder: Path) -> Path:
    """Class folders with a picture of every flavour that can be packed."""
    files = {
        "cat/444.jpg": jpeg(101, 67, 1, subsampling="4:4:4"),
        "cat/422.jpg": jpeg(90, 61, 2, subsampling="4:2:2"),
        "cat/420.JPEG": jpeg(77, 130, 3, subsampling="4:2:0"),
        "cat/deep/progressive.jpg": jpeg(64, 64, 4, progressive=True),
        "dog/gray.jpg": jpeg(50, 40, 5, mode="L"),
        "dog/cmyk.jpg": jpeg(60, 45, 6, mode="CMYK"),
        "dog/one.jpg": jpeg(1, 1, 7),
        "dog/turned.jpg": turned_jpeg(6),
        "newt/rgb.png": png(30, 20, 8),
        "newt/palette.png": png(31, 21, 9, mode="P"),
        "newt/alpha.png": png(32, 22, 10, mode="RGBA"),
        "newt/lossless.webp": webp(33, 23, 11),
    }
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def pixels(data: bytes) -> np.ndarray:
    """What Pillow makes of a picture file."""
    with Image.open(io.BytesIO(data)) as picture:
        return np.asarray(picture.convert("RGB"))


def _save(picture: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()
