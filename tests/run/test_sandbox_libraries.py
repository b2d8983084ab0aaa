"""Trials see what libraries of C and Rust write, and the user's files do not."""

from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from tests.run.sandbox_kit import in_trial, make_home

# Opens files past Python, as libraries of C do.
_LIBC = """
import ctypes, os
_libc = ctypes.CDLL(None)
_libc.fopen.restype = ctypes.c_void_p
_libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
_libc.fgets.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
_libc.fclose.argtypes = [ctypes.c_void_p]

def put(path, text):
    file = _libc.fopen(os.fsencode(path), b"w")
    if not file:
        raise FileNotFoundError(path)
    _libc.fputs(text.encode(), file)
    _libc.fclose(file)

def get(path):
    file = _libc.fopen(os.fsencode(path), b"r")
    if not file:
        raise FileNotFoundError(path)
    text = ctypes.create_string_buffer(100)
    _libc.fgets(text, 100, file)
    _libc.fclose(file)
    return text.value.decode()
"""

_CV2 = """
from libc import get, put

def imread(filename, flags=1):
    return get(filename)

def imwrite(filename, img):
    put(filename, img)
    return True
"""

_TOKENIZERS = """
from libc import get, put
from tokenizers import models

class Tokenizer:
    def __init__(self, model):
        self.model, self.trained = model, ""

    def save(self, path, pretty=True):
        put(path, "tokens")

    @staticmethod
    def from_file(path):
        return get(path)

    def train(self, files, trainer=None):
        self.trained = "".join(map(get, files))
"""

_MODELS = """
from libc import put

class Model:
    def save(self, folder, prefix=None):
        put(folder + "/vocab.txt", "words")
        return [folder + "/vocab.txt"]

class BPE(Model):
    pass
"""

_PYARROW = """
from pyarrow import lib
from pyarrow.lib import OSFile, create_memory_map, input_stream, memory_map, output_stream
"""

_PYARROW_LIB = """
from libc import get, put

class OSFile:
    def __new__(cls, path, mode="r"):
        self = object.__new__(cls)
        self.path = path
        return self

    def write(self, text):
        put(self.path, text)

    def read(self):
        return get(self.path)

def memory_map(path, mode="r"):
    return get(path)

def input_stream(source):
    return get(source)

def output_stream(source):
    return OSFile(source, "w")

def create_memory_map(path, size):
    put(path, "0" * size)
"""

_PARQUET = """
from libc import get, put

class ParquetFile:
    def __init__(self, source, **options):
        self.text = get(source)

class ParquetWriter:
    def __init__(self, where, schema=None):
        put(where, "rows by a writer")

def read_table(source, **options):
    return get(source)

def write_table(table, where, **options):
    put(where, table)
"""

_FEATHER = """
from libc import get, put

def read_feather(source):
    return get(source)

read_table = read_feather

def write_feather(df, dest):
    put(dest, df)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = make_home(tmp_path)
    for name, text in {
        "libc": _LIBC,
        "cv2": _CV2,
        "tokenizers/__init__": _TOKENIZERS,
        "tokenizers/models": _MODELS,
        "pyarrow/__init__": _PYARROW,
        "pyarrow/lib": _PYARROW_LIB,
        "pyarrow/parquet": _PARQUET,
        "pyarrow/feather": _FEATHER,
    }.items():
        file = tmp_path / "site" / f"{name}.py"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
    return made


_OPENCV_DONE = """
import cv2
cv2.imwrite("new/x.png", "pixels")
cv2.imwrite("data/a.txt", img="other")
print(cv2.imread("new/x.png"), cv2.imread("data/a.txt"), cv2.imread(filename="log.txt").strip())
"""
_ARROW_DONE = """
import pyarrow as pa
print(pa.memory_map("new/text"), pa.OSFile("new/text").read(), pa.input_stream(source="new/text"))
print(pa.memory_map("log.txt").strip())
pa.OSFile("data/a.txt", mode="wb").write("y")
pa.output_stream("new/z").write("z")
pa.create_memory_map("new/m", 4)
print(open("data/a.txt").read(), open("new/z").read(), open("new/m").read())
"""
_TABLES_DONE = """
import pyarrow.parquet as pq
from pyarrow import feather
pq.write_table("rows", "log.txt")
print(pq.read_table("log.txt"), pq.ParquetFile("log.txt").text)
pq.ParquetWriter("log.txt", None)
feather.write_feather("f", "new/f")
print(open("log.txt").read(), feather.read_feather("new/f"), feather.read_table("new/f"))
"""
_TOKENS_DONE = """
from tokenizers import Tokenizer
from tokenizers.models import BPE
tokenizer = Tokenizer(BPE())
tokenizer.save("new/t.json")
print(open("new/t.json").read(), Tokenizer.from_file("new/t.json"))
tokenizer.train(["new/text"])
print(tokenizer.trained)
print(*BPE().save("data"), *BPE().save("new"), open("data/vocab.txt").read())
"""


@pytest.mark.parametrize("is_there", [False, True], ids=["imported later", "imported by then"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (_OPENCV_DONE, ["pixels other line"]),
        (_ARROW_DONE, ["by Python by Python by Python", "line", "y z 0000"]),
        (_TABLES_DONE, ["rows rows", "rows by a writer f f"]),
        (_TOKENS_DONE, ["tokens tokens", "by Python", "data/vocab.txt new/vocab.txt words"]),
    ],
    ids=["OpenCV", "Arrow", "tables", "tokenizers"],
)
def test_what_it_writes_is_the_trials_own(
    home: Path, code: str, said: list[str], is_there: bool
) -> None:
    first = f"import sys; sys.path.insert(0, {str(home.parent / 'site')!r})\n"
    if is_there:
        first += "import cv2, pyarrow.feather, pyarrow.parquet, tokenizers\n"
    made = "os.mkdir('new'); open('new/text', 'w').write('by Python')\n"
    found = in_trial(home, made + code, first=first)
    assert found.replace(f"{home}/", "").splitlines() == said


def test_files_of_hdf5_are_the_trials_own(home: Path) -> None:
    code = """
        import h5py
        with h5py.File("users.h5", "r+") as file:
            file["x"][0] = 7
        with h5py.File("users.h5") as file:
            print(file["x"][:])
        with h5py.File(name="new.h5", mode="w-") as file:
            file["y"] = 3
        with h5py.File("new.h5", "a") as file:
            print(file["y"][()])
        try:
            h5py.File("users.h5", "x")
        except FileExistsError:
            print("is there")
    """
    import h5py

    with h5py.File(home / "users.h5", "w") as file:
        file["x"] = [1, 2]
    assert in_trial(home, dedent(code)).splitlines() == ["[7 2]", "3", "is there"]


def test_a_large_file_of_hdf5_is_not_copied_to_be_read(home: Path) -> None:
    """Though the script may write to it."""
    import h5py

    with h5py.File(home / "users.h5", "w") as file:
        file["x"] = np.zeros(80 << 20, np.uint8)
    code = """
        import h5py
        with h5py.File("users.h5", mode="a") as file:
            print(file["x"][-1], file.filename)
    """
    assert in_trial(home, dedent(code)).split() == ["0", "users.h5"]
