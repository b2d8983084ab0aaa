"""Trials see what libraries of C and Rust write, and the user's files do not."""

from pathlib import Path
from textwrap import dedent

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
from libc import get, put

class Model:
    def save(self, folder, prefix=None):
        put(folder + "/vocab.txt", "words")
        return [folder + "/vocab.txt"]

class BPE(Model):
    @staticmethod
    def from_file(vocab, merges=None, unk_token=""):
        return get(vocab) + unk_token

    read_file = from_file

class WordLevel(BPE):
    pass

class WordPiece(BPE):
    pass
"""

_PYARROW = """
from pyarrow.lib import memory_map
"""

_PYARROW_LIB = """
from libc import get

def memory_map(path, mode="r"):
    return get(path)
"""

_PARQUET = """
from pyarrow.parquet.core import ParquetFile, ParquetWriter, read_table, write_table
"""

_PARQUET_CORE = """
from libc import get, put

class ParquetFile:
    def __init__(self, source, **options):
        self.text = get(source)

class ParquetWriter:
    def __init__(self, where, schema=None):
        put(where, "rows by a writer")

def read_table(source, **options):
    return source if "://" in str(source) else get(source)

def write_table(table, where, **options):
    put(where, table)
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
        "pyarrow/parquet/__init__": _PARQUET,
        "pyarrow/parquet/core": _PARQUET_CORE,
    }.items():
        file = tmp_path / "site" / f"{name}.py"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
    return made


_OPENCV_DONE = """
import pickle
import cv2
cv2.imwrite("new/x.png", img="pixels")
print(cv2.imread("new/x.png"), cv2.imread(filename="log.txt").strip())
open("data/a.txt", "w").write("by Python")
cv2.imwrite("data/a.txt", "other")
print(cv2.imread("data/a.txt"), pickle.loads(pickle.dumps(cv2.imread)) is cv2.imread)
"""
_ARROW_DONE = """
import pyarrow as pa
print(pa.memory_map("new/text"), pa.memory_map("log.txt").strip())
"""
_TABLES_DONE = """
import pickle
import pyarrow.parquet as pq
pq.write_table("rows", "new/rows")
print(pq.read_table("new/rows"), pq.ParquetFile(source="new/rows").text)
pq.ParquetWriter("new/rows", None)
print(open("new/rows").read(), pq.read_table("s3://there/x"), pq.read_table("log.txt").strip())
print(pickle.loads(pickle.dumps(pq.read_table)) is pq.read_table)
"""
_TOKENS_DONE = """
from tokenizers import Tokenizer
from tokenizers.models import BPE
tokenizer = Tokenizer(BPE())
tokenizer.save("new/t.json")
tokenizer.save("data/a.txt")
print(open("new/t.json").read(), *(Tokenizer.from_file(f) for f in ("new/t.json", "data/a.txt")))
tokenizer.train(["new/text", "log.txt"])
print(tokenizer.trained.strip())
print(*BPE().save("new"), BPE.read_file("new/vocab.txt"))
print(BPE.from_file("new/vocab.txt", unk_token="?"))
"""


@pytest.mark.parametrize("is_there", [False, True], ids=["imported later", "imported by then"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (_OPENCV_DONE, ["pixels line", "other True"]),
        (_ARROW_DONE, ["by Python line"]),
        (_TABLES_DONE, ["rows rows", "rows by a writer s3://there/x line", "True"]),
        (_TOKENS_DONE, ["tokens tokens tokens", "by Pythonline", "new/vocab.txt words", "words?"]),
    ],
    ids=["OpenCV", "Arrow", "tables", "tokenizers"],
)
def test_what_it_writes_is_the_trials_own(
    home: Path, code: str, said: list[str], is_there: bool
) -> None:
    first = f"import sys; sys.path.insert(0, {str(home.parent / 'site')!r})\n"
    if is_there:
        first += "import cv2, pyarrow.parquet, tokenizers\n"
    made = "os.mkdir('new'); open('new/text', 'w').write('by Python')\n"
    found = in_trial(home, made + code, first=first)
    assert found.replace(f"{home}/", "").splitlines() == said


def test_files_of_hdf5_are_the_trials_own(home: Path) -> None:
    """But for those that are there and opened to be changed."""
    import h5py

    code = """
        import h5py
        with h5py.File(name="users.h5", mode="a") as file:
            print(file["x"][:], file.filename)
        with h5py.File("users.h5", "r+") as file:
            print(file["x"][0])
        try:
            h5py.File("users.h5", "x")
        except FileExistsError:
            print("is there")
        with h5py.File("new.h5", "w-") as file:
            file["y"] = 3
        with h5py.File("new.h5", "a") as file:
            file["z"] = 4
        with h5py.File("new.h5") as file:
            print(file["y"][()] + file["z"][()])
        with h5py.File("users.h5", "w") as file:
            file["y"] = 5
        with h5py.File("users.h5", "r+") as file:
            print(*file)
    """
    with h5py.File(home / "users.h5", "w") as file:
        file["x"] = [1, 2]
    said = ["[1 2] users.h5", "1", "is there", "7", "y"]
    assert in_trial(home, dedent(code)).splitlines() == said
