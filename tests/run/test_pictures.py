"""Late pictures give what Pillow gives, byte for byte, and say what it says."""

import copy
import gc
import io
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageEnhance, ImageFile, ImageFilter, ImageOps, ImageStat
from PIL.JpegImagePlugin import JpegImageFile

from slipstream.run.pictures import counts, source
from slipstream.run.pictures.install import install
from slipstream.run.pictures.lazy import LateImage, LateJpegFile
from slipstream.run.pictures.source import Source
from tests.pictures import jpeg, png
from tests.run.pictures_kit import FILES, LATE, both, late_pictures, open_bytes, seen, shown

T, R = Image.Transpose, Image.Resampling

CHAINS: dict[str, Any] = {
    "as it is": lambda p: p,
    "convert": lambda p: p.convert("RGB"),
    "convert to nothing": lambda p: p.convert(),
    "convert twice": lambda p: p.convert("RGB").convert("RGB"),
    "convert to gray": lambda p: p.convert("L"),
    "gray and back": lambda p: p.convert("L").convert("RGB"),
    "gray, resized, RGB": lambda p: p.resize((20, 20)).convert("RGB"),
    "with a matrix": lambda p: p.convert("RGB").convert("L", (1, 0, 0, 0)),
    "with a matrix, to RGB": lambda p: p.convert("RGB").convert("RGB", (0, 1, 0, 0) * 3),
    "copy": lambda p: p.copy(),
    "crop": lambda p: p.convert("RGB").crop((0, 0, 1, 1)),
    "crop to nothing": lambda p: p.convert("RGB").crop((1, 1, 1, 1)),
    "crop of all": lambda p: p.convert("RGB").crop((0, 0, *p.size)),
    "crop without a box": lambda p: p.convert("RGB").crop(),
    "crop over the edge": lambda p: p.convert("RGB").crop((-5, -3, p.width + 4, p.height + 2)),
    "crop outside": lambda p: p.convert("RGB").crop((500, 500, 510, 520)),
    "crop of floats": lambda p: p.crop((0.4, 0.5, p.width - 0.5, p.height - 0.3)),
    "crop of a list": lambda p: p.crop([0, 0, p.width, 1]),
    "crop of numpy's": lambda p: p.crop(tuple(np.array([0, 0, 1, 1]))),
    "crop backwards": lambda p: p.convert("RGB").crop((9, 0, 2, 5)),
    "crop of three": lambda p: p.convert("RGB").crop((9, 0, 2)),
    "crop of an array": lambda p: p.convert("RGB").crop(np.array([0, 0, 1, 1])),
    "crop of crop": lambda p: p.crop((0, 0, p.width, p.height)).crop((0, 0, 1, p.height)),
    "mirror": lambda p: p.convert("RGB").transpose(T.FLIP_LEFT_RIGHT),
    "mirror of a number": lambda p: p.convert("RGB").transpose(0),
    "upside down": lambda p: p.convert("RGB").transpose(T.FLIP_TOP_BOTTOM),
    "turned by 180": lambda p: p.transpose(T.ROTATE_180),
    "turned by 90": lambda p: p.transpose(T.ROTATE_90),
    "ImageOps.mirror": lambda p: ImageOps.mirror(p.convert("RGB")),
    "mirror, then crop": lambda p: p.transpose(0).crop((0, 0, 1, p.height)),
    "mirror, then resize": lambda p: p.transpose(0).resize((31, 17), R.BILINEAR),
    "resize as usual": lambda p: p.convert("RGB").resize((31, 17)),
    "resize to a list": lambda p: p.convert("RGB").resize([31, 17], R.BILINEAR),
    "resize to numpy's": lambda p: p.convert("RGB").resize(np.array([31, 17])),
    "resize to its size": lambda p: p.convert("RGB").resize(p.size),
    "resize one side": lambda p: p.convert("RGB").resize((p.width, 20), R.BILINEAR),
    "resize to nothing": lambda p: p.convert("RGB").resize((0, 5)),
    "resize to less": lambda p: p.convert("RGB").resize((-1, 5)),
    "resize to floats": lambda p: p.convert("RGB").resize((5.0, 5.0)),
    "resize of an unknown filter": lambda p: p.convert("RGB").resize((5, 5), 77),
    "resize of a word": lambda p: p.convert("RGB").resize((5, 5), "bilinear"),
    "resize in a box": lambda p: p.convert("RGB").resize((9, 9), box=(0, 0, 1, 1)),
    "resize with a gap": lambda p: p.convert("RGB").resize((9, 9), reducing_gap=2.0),
    "resize twice": lambda p: p.convert("RGB").resize((40, 40)).resize((9, 9)),
    "resize, crop, resize": lambda p: p.resize((40, 40)).crop((1, 1, 30, 20)).resize((9, 9)),
    "resize, crop, mirror, crop": lambda p: (
        p.resize((40, 50), R.LANCZOS).crop((3, 4, 33, 44)).transpose(0).crop((1, 2, 20, 30))
    ),
    "thumbnail": lambda p: _and_it(p, p.thumbnail((20, 20))),
    "thumbnail of a copy": lambda p: (q := p.convert("RGB"), q.thumbnail((20, 20)))[0],
    "thumbnail without a gap": lambda p: (
        q := p.convert("RGB"),
        q.thumbnail((20, 20), reducing_gap=None),
    )[0],
    "draft": lambda p: _and_it(p, p.draft("RGB", (20, 20))).resize((9, 9)),
    "draft of gray": lambda p: _and_it(p, p.draft("L", None)).convert("RGB"),
    "draft too late": lambda p: _and_it(p, p.convert("RGB"), p.draft("L", (9, 9))),
    "load first": lambda p: _and_it(p, p.load()).convert("RGB").resize((9, 9)),
    "load a copy": lambda p: (q := p.convert("RGB"), q.load())[0].resize((9, 9)),
    "pixel": lambda p: p.convert("RGB").crop((0, 0, 1, 1)).getpixel((0, 0)),
    "pixel of load": lambda p: p.convert("RGB").load()[0, 0],
    "pixel of the file's load": lambda p: p.load()[0, 0],
    "written through load": lambda p: (q := p.convert("RGB"), q.load().__setitem__((0, 0), 3))[0],
    "loaded twice": lambda p: (p.load(), p.load(), p.fp, p.tile, np.asarray(p)[0, 0].tolist())[2:],
    "loaded, then used": lambda p: (p.load(), p.filter(ImageFilter.BLUR))[1],
    "loaded, then closed": lambda p: (p.load(), p.close(), p.convert("RGB")),
    "pixel of the file, late": lambda p: (p.convert("RGB"), p.getpixel((0, 0)))[1],
    "im of the file": lambda p: p.im,
    "im of the file, late": lambda p: (p.convert("RGB"), p.im.size)[1],
    "readonly": lambda p: p.convert("RGB").readonly,
    "written to": lambda p: _changed(p.convert("RGB")),
    "written to, the file": lambda p: _changed(_and_it(p)),
    "drawn on": lambda p: _drawn(p.convert("RGB").resize((40, 40))),
    "filter": lambda p: p.convert("RGB").resize((30, 30)).filter(ImageFilter.BLUR),
    "point": lambda p: p.convert("RGB").point(lambda v: 255 - v),
    "enhance": lambda p: ImageEnhance.Color(p.convert("RGB").resize((30, 30))).enhance(0.3),
    "autocontrast": lambda p: ImageOps.autocontrast(p.convert("RGB")),
    "fit": lambda p: ImageOps.fit(p.convert("RGB"), (20, 20)),
    "pad": lambda p: ImageOps.expand(p.convert("RGB"), 3, (1, 2, 3)),
    "orientation": ImageOps.exif_transpose,
    "orientation of RGB": lambda p: ImageOps.exif_transpose(p.convert("RGB")),
    "rotate": lambda p: p.convert("RGB").rotate(30, R.BILINEAR),
    "split": lambda p: p.convert("RGB").split()[2 if p.mode else 0],
    "histogram": lambda p: p.convert("RGB").histogram(),
    "mean": lambda p: ImageStat.Stat(p.convert("RGB")).mean,
    "blend": lambda p: Image.blend(p.convert("RGB"), p.convert("RGB").transpose(0), 0.25),
    "paste": lambda p: _and_it(q := Image.new("RGB", (9, 9)), q.paste(p.convert("RGB"), (1, 1))),
    "save": lambda p: _saved(p.convert("RGB").resize((30, 30))),
    "bytes": lambda p: p.convert("RGB").tobytes(),
    "bytes in another order": lambda p: p.convert("RGB").tobytes("raw", "BGR"),
    "bytes of the file": lambda p: p.tobytes(),
    "from its array": lambda p: Image.fromarray(np.asarray(p.convert("RGB"))),
    "array": lambda p: np.asarray(p.convert("RGB")),
    "array to write to": lambda p: np.array(p.convert("RGB").resize((9, 9))),
    "array of floats": lambda p: np.asarray(p.convert("RGB"), dtype=np.float32),
    "array of the file": np.asarray,
    "interface": lambda p: {
        k: bytes(v) if k == "data" else v for k, v in p.convert("RGB").__array_interface__.items()
    },
    "pickled": lambda p: pickle.loads(pickle.dumps(p.convert("RGB").resize((9, 9)))),
    "pickled file": lambda p: pickle.loads(pickle.dumps(p)),
    "copied": lambda p: copy.copy(p.convert("RGB").crop((0, 0, 1, 1))),
    "copied deeply": lambda p: copy.deepcopy(p.convert("RGB").resize((9, 9))),
    "equal": lambda p: (p.convert("RGB") == p.convert("RGB"), p.convert("RGB") == p, p != p.copy()),
    "closed": lambda p: (q := p.convert("RGB"), q.close(), q.getpixel((0, 0))),
    "closed, then an array": lambda p: (q := p.convert("RGB"), q.close(), np.asarray(q)),
    "closed file": lambda p: (p.close(), p.convert("RGB")),
    "closed file, late": lambda p: (q := p.convert("RGB"), p.close(), q.resize((9, 9)))[-1],
    "closed file, used": lambda p: (p.convert("RGB"), p.close(), np.asarray(p)),
    "left block": lambda p: (p.__enter__(), p.__exit__(), p.convert("RGB")),
    "left block, late": lambda p: (p.convert("RGB"), p.__exit__(), p.resize((5, 5)))[-1],
    "verified": lambda p: (p.verify(), p.convert("RGB")),
    "state of the file": lambda p: (p.convert("RGB"), p.fp, p.tile, p.size, p.mode, p.bits)[1:],
    "names": lambda p: (type(p).__mro__[-2].__name__, p.__class__, p.convert("RGB").__class__),
    "kinds": lambda p: (isinstance(p, JpegImageFile), isinstance(p.copy(), JpegImageFile)),
    "palette": lambda p: p.convert("P"),
    "colours": lambda p: p.convert("RGB").quantize(4).getpalette(),
    "exif": lambda p: (dict(p.getexif()), dict(p.convert("RGB").getexif())),
    "info": lambda p: _without_addresses(p.convert("RGB").resize((9, 9)).info),
    "info that changes": lambda p: (
        p.info.update(mine=[1]),
        q := p.copy(),
        q.info["mine"].append(2),
        p.info["mine"],
    )[-1],
    "bands": lambda p: (p.getbands(), p.convert("RGB").getbands(), p.resize((3, 3)).getbands()),
    "transparent": lambda p: (p.info.update(transparency=3), p.convert("RGB"))[1].info,
}


def _and_it(picture: Any, *_: Any) -> Any:
    return picture


def _changed(picture: Any) -> Any:
    picture.putpixel((0, 0), 7)
    return picture


def _drawn(picture: Any) -> Any:
    ImageDraw.Draw(picture).line((0, 0, 20, 20), fill=3)
    return picture


def _saved(picture: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def _without_addresses(info: Any) -> str:
    return str(sorted((str(key), str(value)) for key, value in info.items()))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("chain", CHAINS)
def test_equals_pillow(name: str, chain: str) -> None:
    def run() -> Any:
        return CHAINS[chain](open_bytes(FILES[name]))

    alone, late = both(run)
    assert late == alone


@pytest.mark.parametrize("filter", list(R))
@pytest.mark.parametrize("name", LATE)
def test_filters(name: str, filter: Image.Resampling) -> None:
    def run() -> list[Any]:
        picture = open_bytes(FILES[name]).convert("RGB")
        return [
            shown(picture.resize((width, height), filter))
            for width, height in ((1, 1), (17, 90), (200, 13), (picture.width, 5))
        ]

    alone, late = both(run)
    assert late == alone


def _steps() -> Any:
    share = st.floats(-0.1, 1.1)
    return st.lists(
        st.one_of(
            st.tuples(st.just("crop"), share, share, share, share),
            st.tuples(st.just("inside"), *[st.floats(0, 1)] * 4),
            st.tuples(
                st.just("resize"), st.integers(1, 90), st.integers(1, 90), st.sampled_from(list(R))
            ),
            st.tuples(st.just("flip"), st.sampled_from(list(T))),
            st.tuples(st.just("convert"), st.sampled_from(["RGB", "RGB", "L"])),
            st.tuples(st.just("copy")),
            st.tuples(st.just("look")),
        ),
        max_size=6,
    )


def _apply(picture: Any, step: Any) -> Any:
    kind, *values = step
    width, height = picture.size
    if kind == "crop":
        sides = sorted(values[:2]), sorted(values[2:])
        return picture.crop(
            (sides[0][0] * width, sides[1][0] * height, sides[0][1] * width, sides[1][1] * height)
        )
    if kind == "inside":
        left, top = int(values[0] * (width - 1)), int(values[1] * (height - 1))
        right = left + 1 + int(values[2] * (width - left - 1))
        return picture.crop((left, top, right, top + 1 + int(values[3] * (height - top - 1))))
    if kind == "resize":
        return picture.resize(tuple(values[:2]), values[2])
    if kind == "flip":
        return picture.transpose(values[0])
    if kind == "convert":
        return picture.convert(values[0])
    if kind == "look":
        np.asarray(picture)
        return picture
    return picture.copy()


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(LATE), steps=_steps())
def test_any_chain(name: str, steps: list[Any]) -> None:
    def run() -> list[Any]:
        pictures = [open_bytes(FILES[name])]
        for step in steps:
            if 0 in pictures[-1].size:
                break
            pictures.append(_apply(pictures[-1], step))
        # From the last to the first: the last is fused, the others come of the same file.
        return [shown(picture) for picture in reversed(pictures)]

    alone, late = both(run)
    assert late == alone


def test_chains_are_fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow decodes nothing, and the engine what is needed."""
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(120, 90))
    with late_pictures():
        monkeypatch.setattr(ImageFile.ImageFile, "load", None)
        with Image.open(path) as opened:
            assert type(opened) is LateJpegFile
            opened.load()
            assert type(opened) is LateJpegFile
            picture = opened.convert("RGB")
        assert opened.fp is None
        picture = picture.crop((10, 10, 80, 70)).resize((32, 32)).transpose(T.FLIP_LEFT_RIGHT)
        picture = picture.crop((0, 0, 30, 30))
        assert type(picture) is LateImage
        assert np.asarray(picture).shape == (30, 30, 3)
        assert type(picture) is LateImage
        assert picture.getpixel((0, 0)) == tuple(np.asarray(picture)[0, 0])
        assert type(picture) is Image.Image
        assert counts.total() == (1, 0)


def test_file_is_read_when_pillow_would(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(60, 40))
    want = np.asarray(Image.open(path).convert("RGB"))
    with late_pictures():
        with path.open("rb") as file:
            opened = Image.open(file)
            assert file.tell() < path.stat().st_size or not opened.fp.closed
            picture = opened.convert("RGB")
        path.unlink()
        assert np.array_equal(np.asarray(picture), want)
        path.write_bytes(jpeg(60, 40))
        with path.open("rb") as file:
            opened = Image.open(file)
        assert seen(lambda: opened.convert("RGB"))[0] is ValueError  # of the closed file


def test_other_file_objects(tmp_path: Path) -> None:
    class Stream:
        """Can be read, and nothing else."""

        def __init__(self, data: bytes) -> None:
            self._file = io.BytesIO(data)

        def read(self, count: int = -1) -> bytes:
            return self._file.read(count)

    path = tmp_path / "a.jpg"
    path.write_bytes(data := jpeg(60, 40))
    want = np.asarray(open_bytes(data))
    with late_pictures():
        assert np.array_equal(np.asarray(Image.open(Stream(data))), want)  # type: ignore[arg-type]
        assert np.array_equal(np.asarray(Image.open(str(path))), want)
        with path.open("rb", buffering=0) as raw:
            assert np.array_equal(np.asarray(Image.open(raw)), want)
        assert counts.total() == (3, 0)


DAMAGED = {
    "empty": b"",
    "text": b"this is no picture at all",
    "header only": jpeg(60, 40)[:200],
    "cut": jpeg(60, 40)[:-300],
    "without its end": jpeg(60, 40)[:-2],
    "cut, progressive": jpeg(60, 40, progressive=True)[:-300],
    "cut behind SOI": jpeg(60, 40)[:2],
    "no tables": (good := jpeg(60, 40)).replace(good[good.index(b"\xff\xc4") :][:33], b"", 1),
    "bad table": good[: good.index(b"\xff\xc4") + 5]
    + b"\xff" * 16
    + good[good.index(b"\xff\xc4") + 21 :],
    "marker in the scan": good[:-200] + b"\xff\xc4" + good[-198:],
    "end in the scan": good[:-200] + b"\xff\xd9" + good[-198:],
    "zeros in the scan": good[:-200] + b"\x00" * 100 + good[-100:],
    "ones in the scan": good[:-200] + b"\xfe" * 100 + good[-100:],
}


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("name", DAMAGED)
def test_errors_are_pillows(
    name: str, truncated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same error at the same call."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", truncated)
    path = tmp_path / "a.jpg"
    path.write_bytes(DAMAGED[name])

    def run() -> list[Any]:
        done: list[Any] = []
        try:
            done.append(Image.open(path).size)
            picture = Image.open(path).convert("RGB")
            done.append("converted")
            picture = picture.crop((0, 0, 30, 20)).resize((9, 9))
            done += ["resized", shown(picture)]
            done += [shown(Image.open(path).convert("RGB"))]
        except Exception as error:
            done += [type(error), str(error)]
        return done

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        alone, late = both(run)
        gc.collect()
    assert late == alone


def test_missing_file(tmp_path: Path) -> None:
    alone, late = both(lambda: Image.open(tmp_path / "none.jpg"))
    assert late == alone and late[0] is FileNotFoundError


@pytest.mark.parametrize("limit", [2000, 3000, 6000])
def test_decompression_bombs(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warned of as often, and refused where Pillow refuses."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)

    def run() -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = seen(
                lambda: open_bytes(jpeg(80, 60)).convert("RGB").crop((0, 0, 79, 59)).resize((9, 9))
            )
            large = seen(lambda: open_bytes(jpeg(40, 20)).resize((90, 90)).crop((0, 0, 89, 89)))
        return result, large, [str(warning.message) for warning in caught]

    alone, late = both(run)
    assert late == alone


def test_many_windows_of_one_file() -> None:
    """Decoded whole at the second, and equal all the same."""

    def run() -> list[Any]:
        picture = open_bytes(FILES["4:2:0"]).convert("RGB")
        small = [picture.crop((k, 2 * k, k + 40, k + 60)).resize((20, 20)) for k in range(12)]
        flipped = [one.transpose(k % 7) for k, one in enumerate(small)]
        return [shown(one) for one in (*small, *flipped, picture)]

    alone, late = both(run)
    assert late == alone


def test_arrays_outlive_their_picture() -> None:
    want = np.asarray(open_bytes(FILES["4:4:4"]).convert("RGB"))
    with late_pictures():
        picture = open_bytes(FILES["4:4:4"]).convert("RGB")
        array = np.asarray(picture)
        picture.putpixel((0, 0), (1, 2, 3))
        picture.close()
        del picture
        gc.collect()
        np.empty_like(want).fill(9)
        assert np.array_equal(array, want) and not array.flags.writeable


def _closed(picture: Image.Image) -> None:
    picture.close()


def _smaller(picture: Image.Image) -> None:
    picture.thumbnail((9, 9))


def _with_alpha(picture: Image.Image) -> None:
    picture.putalpha(7)


@pytest.mark.parametrize("change", [_closed, _smaller, _with_alpha])
@pytest.mark.parametrize("is_converted", [True, False])
def test_who_has_got_at_the_pixels_goes_on_with_them(change: Any, is_converted: bool) -> None:
    def run() -> Any:
        picture: Any = open_bytes(FILES["4:4:4"])
        picture = picture.convert("RGB") if is_converted else picture
        pixels = picture.load()
        change(picture)
        return pixels[15, 15], pixels[0, 0]

    alone, late = both(run)
    assert late == alone


def test_a_printed_class_is_pillows() -> None:
    def run() -> Any:
        opened = open_bytes(FILES["4:4:4"])
        return str(type(opened)), str(type(opened.convert("RGB")))

    alone, late = both(run)
    assert late == alone


def test_threads() -> None:
    names = [name for name in LATE if not name.startswith("one")] * 20

    def work(name: str) -> bytes:
        return open_bytes(FILES[name]).convert("RGB").resize((33, 21)).tobytes()

    want = [work(name) for name in names]
    shared_want = open_bytes(FILES["4:2:0"]).convert("RGB").resize((33, 21))
    with late_pictures(), ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, names)) == want
        for _ in range(20):
            shared = open_bytes(FILES["4:2:0"]).convert("RGB").resize((33, 21))
            uses = [np.asarray, np.array, lambda p: p.getpixel((3, 3)), lambda p: p.tobytes()] * 4
            found = list(pool.map(lambda use, one=shared: use(one), uses))  # type: ignore[misc]
            assert shown(np.asarray(shared)) == shown(np.asarray(shared_want))
            assert found[2] == shared_want.getpixel((3, 3))


def test_memory_and_files_do_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(300, 200))

    def work(count: int) -> None:
        for number in range(count):
            picture = Image.open(path).convert("RGB").crop((9, 9, 200, 150)).resize((64, 64))
            np.asarray(picture)
            if number % 3 == 0:
                picture.getpixel((0, 0))

    with late_pictures(), warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        work(200)
        gc.collect()
        before, open_before = _resident_bytes(), _open_files()
        work(2000)
        gc.collect()
        assert _resident_bytes() - before < 8 << 20
        assert _open_files() == open_before


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_other_pictures_are_left_alone() -> None:
    with late_pictures():
        for data in (png(20, 10), FILES["cmyk"], FILES["progressive"]):
            assert type(open_bytes(data)).__module__.startswith("PIL.")
        assert counts.total() == (0, 3)


def test_a_file_that_pillow_decodes_otherwise_is_left_to_it() -> None:
    for name in LATE:
        picture = open_bytes(FILES[name])
        assert Source.of(FILES[name], picture.size) is not None
    for name in ("cut", "without its end", "bad table", "marker in the scan"):
        assert Source.of(DAMAGED[name], (60, 40)) is None


def test_what_goes_wrong_in_the_engine_is_done_by_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    want = open_bytes(FILES["4:2:0"]).convert("RGB").crop((5, 6, 70, 80)).resize((31, 20))
    want = want.crop((1, 2, 30, 19)).transpose(T.ROTATE_180)
    with late_pictures():
        picture = open_bytes(FILES["4:2:0"]).convert("RGB").crop((5, 6, 70, 80)).resize((31, 20))
        picture = picture.crop((1, 2, 30, 19)).transpose(T.ROTATE_180)
        monkeypatch.setattr(source, "_decode", None)
        assert shown(picture) == shown(want)
        assert shown(open_bytes(FILES["4:4:4"]).convert("RGB"))[1] == (97, 61)


def test_pillow_goes_on_where_late_pictures_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Exception] = []
    undo = install(give_up=told.append)
    try:
        monkeypatch.setattr("slipstream.run.pictures.install.open_alike", None)
        kinds = [type(open_bytes(FILES["4:4:4"])) for _ in range(3)]
    finally:
        undo()
    assert len(told) == 1 and isinstance(told[0], TypeError)
    assert kinds[1:] == [JpegImageFile] * 2


def test_undone() -> None:
    original = Image.open
    with late_pictures():
        assert Image.open is not original
        picture = open_bytes(FILES["4:4:4"]).convert("RGB")
        with late_pictures():  # twice is once
            pass
        assert Image.open is not original
    assert Image.open is original
    assert picture.getpixel((0, 0)) == open_bytes(FILES["4:4:4"]).getpixel((0, 0))
