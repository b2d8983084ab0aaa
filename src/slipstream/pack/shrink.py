"""Lossy shrinking of picture files, through Pillow."""

import io

from PIL import Image

DEFAULT_QUALITY = 90


def shrink(data: bytes, *, max_side: int | None, quality: int | None) -> bytes:
    """The picture file, smaller: longer side at most `max_side` pixels, JPEGs at `quality`.

    A picture within `max_side` stays as it is unless `quality` is given; then a JPEG is encoded
    anew, and the original is kept if that is no gain. EXIF and colour profile are kept. What is
    no JPEG and has to be resized becomes a PNG.
    """
    with Image.open(io.BytesIO(data)) as picture:
        is_jpeg = picture.format in ("JPEG", "MPO")
        is_large = max_side is not None and max(picture.size) > max_side
        if not is_large and not (is_jpeg and quality is not None):
            return data
        reduced = _to_storable(picture, jpeg=is_jpeg)
        if is_large and max_side is not None:
            reduced = reduced.resize(_fit(picture.size, max_side), Image.Resampling.LANCZOS)
        out = io.BytesIO()
        markers = {k: picture.info[k] for k in ("exif", "icc_profile") if picture.info.get(k)}
        if not is_jpeg:
            exif = picture.getexif()
            markers |= {"exif": exif.tobytes()} if exif else {}
            reduced.save(out, "PNG", **markers)
            return out.getvalue()
        if picture.mode == "CMYK":
            markers.pop("icc_profile", None)
        reduced.save(out, "JPEG", quality=quality or DEFAULT_QUALITY, **markers)
    return out.getvalue() if is_large or out.tell() < len(data) else data


def _to_storable(picture: Image.Image, *, jpeg: bool) -> Image.Image:
    if jpeg:
        return picture.copy() if picture.mode in ("L", "RGB") else picture.convert("RGB")
    if picture.mode in ("L", "LA", "RGB", "RGBA"):
        return picture.copy()
    return picture.convert("RGBA" if "transparency" in picture.info else "RGB")


def _fit(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    scale = max_side / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
