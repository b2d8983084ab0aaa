"""Files that are opened without reading their headers again are what Pillow opens."""

import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, JpegImagePlugin

from slipstream.run.pictures import headers
from tests.pictures import jpeg, png
from tests.run.pictures_kit import FILES, late_pictures, open_bytes, seen

PLAIN = [name for name in FILES if name not in ("progressive", "cmyk", "turned", "keeps RGB")]


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    headers._known.clear()
    yield
    headers._known.clear()


def attributes(picture: Image.Image) -> dict[str, Any]:
    """All that is in the object."""
    found = {name: value for name, value in vars(picture).items() if name != "fp"}
    file: Any = picture.fp  # type: ignore[attr-defined]
    return {**found, "fp": type(file), "at": file.tell(), "closed": file.closed}


@pytest.mark.parametrize("as_path", [False, True])
@pytest.mark.parametrize("name", list(FILES))
def test_all_attributes_are_pillows(name: str, as_path: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(FILES[name])

    def opened() -> Image.Image:
        return Image.open(path) if as_path else open_bytes(FILES[name])

    with opened() as picture:
        want = attributes(picture)
    with late_pictures():
        for turn in range(3):
            assert (len(headers._known) == 1) == (turn > 0 and name in PLAIN)
            with opened() as picture:
                assert attributes(picture) == want
                picture.info["mine"] = 1
                picture.tile = []


def test_sizes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    with late_pictures():
        first = open_bytes(jpeg(60, 40, 1))
        monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "_open", None)  # not needed any more
        second = open_bytes(jpeg(70, 30, 2))
        assert (first.size, second.size) == ((60, 40), (70, 30))
        assert second.tile[0][1] == (0, 0, 70, 30)  # type: ignore[attr-defined]
        assert second.convert("RGB").tobytes() != first.convert("RGB").tobytes()


def test_every_segment_counts() -> None:
    """Another comment, another density, other tables: another header."""
    files = [
        jpeg(60, 40, comment=b"one"), jpeg(60, 40, comment=b"two"), jpeg(60, 40, dpi=(300, 300)),
        jpeg(60, 40, quality=91), jpeg(60, 40, subsampling=0),
    ]  # fmt: skip
    want = [attributes(open_bytes(data)) for data in files]
    with late_pictures():
        for _ in range(2):
            assert [attributes(open_bytes(data)) for data in files] == want
    assert len(headers._known) == len(files)


@pytest.mark.parametrize("cut", range(2, 640, 7))
def test_cut_headers(cut: int) -> None:
    data = jpeg(60, 40)
    want = seen(lambda: open_bytes(data[:cut]).size)
    with late_pictures():
        open_bytes(data)
        found = seen(lambda: open_bytes(data[:cut]).size)
    if isinstance(want[1], str):  # with the address of the file object
        want, found = (want[0], want[1][:20]), (found[0], found[1][:20])
    assert found == want


def test_errors_and_odd_arguments(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(60, 40))
    closed = io.BytesIO(jpeg(60, 40))
    closed.close()
    cases: list[Any] = [
        lambda: Image.open(tmp_path / "none.jpg"),
        lambda: Image.open(tmp_path),
        lambda: Image.open(3.5),  # type: ignore[arg-type]
        lambda: Image.open(closed),
        lambda: Image.open(os.fsencode(path)).filename,  # type: ignore[attr-defined]
        lambda: Image.open(str(path)).filename,  # type: ignore[attr-defined]
        lambda: Image.open(path).filename,  # type: ignore[attr-defined]
        lambda: Image.open(fp=path).size,
        lambda: Image.open(path, "r", ["PNG"]),
        lambda: Image.open(path, "w"),  # type: ignore[arg-type]
        lambda: Image.open(path, formats=("JPEG",)).size,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        want = [seen(case) for case in cases]
        with late_pictures():
            for _ in range(2):
                Image.open(path).close()
                assert [seen(case) for case in cases] == want


def test_another_plugin_for_jpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def factory(*args: Any) -> Any:
        calls.append(args)
        return JpegImagePlugin.jpeg_factory(*args)

    with late_pictures():
        open_bytes(jpeg(60, 40))
        monkeypatch.setitem(Image.OPEN, "JPEG", (factory, JpegImagePlugin._accept))
        open_bytes(jpeg(60, 40))
    assert len(calls) == 1


def test_streams_that_cannot_go_back() -> None:
    read, write = os.pipe()
    os.write(write, data := jpeg(20, 20))
    os.close(write)
    with late_pictures(), os.fdopen(read, "rb") as file:
        assert Image.open(file).tobytes() == open_bytes(data).tobytes()


def test_known_headers_are_few() -> None:
    with late_pictures():
        for number in range(headers._MOST + 5):
            open_bytes(jpeg(8, 8, comment=str(number).encode()))
        open_bytes(png(8, 8))
    assert len(headers._known) <= headers._MOST
