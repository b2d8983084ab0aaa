"""`file-handles`: opened as ever, parsed and mapped once, and anew when the file is another."""

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from slipstream.doctor.capture import Process, StageTimes
from slipstream.run.files.kept import MOST
from slipstream.run.fix import Situation
from slipstream.run.fixes import file_handles
from tests.run.loop_kit import same_losses, situation

LOOP = """
import io, os, zipfile, numpy as np, torch
from torch.utils.data import DataLoader, Dataset

folder = "FOLDER"
class Archive(Dataset):
    def __len__(self): return 48
    def __getitem__(self, i):
        with zipfile.ZipFile(folder + "/a.zip") as archive:
            image = np.frombuffer(archive.read(f"{i}.raw"), np.float32)
        table = np.load(folder + "/table.npy", mmap_mode="r")
        with np.load(folder + "/b.npz") as arrays:
            scale = arrays["scale"]
        opened.append(archive.fp is None)
        return torch.tensor(image * scale + table[i])

def get_batch():
    data = np.memmap(folder + "/tokens.bin", dtype=np.uint16, mode="r")
    maps.append(data._mmap)
    at = torch.randint(len(data) - 8, (8,))
    return torch.stack([torch.from_numpy(data[i:i + 8].astype(np.int64)) for i in at])

opened, maps = [], []
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for x in DataLoader(Archive(), 8, num_workers=WORKERS):
        optimizer.zero_grad()
        (model(x) + model(get_batch().float() / 99)).square().mean().backward()
        optimizer.step()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(200):
            archive.writestr(f"{number}.raw", random.normal(size=8).astype(np.float32).tobytes())
    np.save(tmp_path / "table.npy", random.normal(size=(48, 8)).astype(np.float32))
    np.savez(tmp_path / "b.npz", scale=np.float32(0.5))
    random.integers(0, 99, 4000).astype(np.uint16).tofile(tmp_path / "tokens.bin")
    return tmp_path


@pytest.fixture
def known(parses: list[str]) -> Iterator[Situation]:
    found = situation()
    undo = file_handles.apply(found)
    yield found
    undo()
    assert found.failures == {}


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Archives whose directory was read."""
    names: list[str] = []
    own: Any = zipfile.ZipFile._RealGetContents  # type: ignore[attr-defined]

    def get_contents(archive: Any) -> None:
        names.append(Path(archive.filename).name)
        own(archive)

    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", get_contents)
    return names


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_reads_the_same(data: Path, workers: int, parses: list[str]) -> None:
    source = LOOP.replace("FOLDER", str(data)).replace("WORKERS", str(workers))
    names, _ = same_losses(source, data, "file-handles")
    assert all(names["opened"])  # closed behind the with, as ever
    assert len({id(mapped) for mapped in names["maps"]}) == 1
    if not workers:
        # 96 samples as the script is, and once each with the fix.
        assert sorted(parses) == ["a.zip"] * 97 + ["b.npz"] * 97


def test_archives_that_overlap_have_their_own_state(
    data: Path, known: Situation, parses: list[str]
) -> None:
    with zipfile.ZipFile(data / "a.zip") as one, zipfile.ZipFile(data / "a.zip") as two:
        first = one.open("0.raw")
        first.read(4)
        assert two.read("0.raw")[4:] == first.read()
        one.filelist.clear()
        one.NameToInfo.clear()
        assert len(two.namelist()) == 200
    assert len(zipfile.ZipFile(data / "a.zip").namelist()) == 200
    assert parses == ["a.zip"]
    with zipfile.ZipFile(data / "a.zip") as archive:
        archive.getinfo("0.raw").filename = "renamed"
    assert "0.raw" in zipfile.ZipFile(data / "a.zip").namelist()
    assert parses == ["a.zip"] * 2


def test_a_file_that_changes_is_read_anew(data: Path, known: Situation) -> None:
    for number in range(3):
        with zipfile.ZipFile(data / "c.zip", "w") as archive:
            archive.writestr(f"{number}", b"x" * number)
        np.full(4, number, np.uint16).tofile(data / "c.bin")
        assert zipfile.ZipFile(data / "c.zip").namelist() == [str(number)]
        assert np.memmap(data / "c.bin", dtype=np.uint16, mode="r")[0] == number
        time.sleep(0.02)


def test_maps_are_as_numpy_makes_them(data: Path) -> None:
    path = data / "tokens.bin"
    ways: list[dict[str, Any]] = [
        {"dtype": np.uint16, "mode": "r"},
        {"dtype": np.uint8, "mode": "r", "offset": 6, "shape": (5, 4), "order": "F"},
        {"dtype": np.uint16, "mode": "c"},
    ]
    plain = [np.memmap(path, **way) for way in ways]
    undo = file_handles.apply(situation())
    for way, expected in zip(ways, plain, strict=True):
        for _ in range(2):
            made = np.memmap(path, **way)
            assert type(made) is np.memmap
            assert made.flags == expected.flags or made.flags.num == expected.flags.num
            for name in ("filename", "offset", "mode", "shape", "strides", "dtype"):
                assert getattr(made, name) == getattr(expected, name)
            np.testing.assert_array_equal(made, expected)
    writable = np.memmap(path, dtype=np.uint16, mode="r+")
    writable[0] = 7
    writable.flush()
    undo()
    assert np.memmap(path, dtype=np.uint16, mode="r")[0] == 7


def test_missing_and_broken_files_are_told_as_ever(data: Path, known: Situation) -> None:
    (data / "broken.zip").write_bytes(b"no zip")
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(data / "broken.zip")
    with pytest.raises(FileNotFoundError):
        np.memmap(data / "none.bin", mode="r")


def test_few_maps_are_kept(data: Path) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/map_files"))  # noqa: PTH208

    undo = file_handles.apply(situation())
    for number in range(3 * MOST):
        np.zeros(4, np.uint8).tofile(data / f"{number}.bin")
    before = open_files()
    for number in range(3 * MOST):
        np.memmap(data / f"{number}.bin", mode="r")
    assert open_files() - before <= MOST
    undo()
    assert open_files() <= before


def test_many_threads_ask(data: Path, known: Situation) -> None:
    for number in range(2 * MOST):
        np.full(8, number, np.uint8).tofile(data / f"{number}.bin")

    def read(number: int) -> bool:
        made = np.memmap(data / f"{number % (2 * MOST)}.bin", mode="r")
        return bool((made == number % (2 * MOST)).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(4000)))


def test_hdf5_files_are_closed_for_the_script(data: Path) -> None:
    with h5py.File(data / "a.h5", "w") as file:
        file["x"] = np.arange(8)
    process = Process(1, 0, None, stages={"read: h5py.File": StageTimes(9)})
    undo = file_handles.apply(situation(processes=[process]))
    for _ in range(3):
        with h5py.File(data / "a.h5", "r") as file:
            assert file["x"][3] == 3
        assert not file
    with h5py.File(data / "a.h5", "a") as file:
        file["x"][3] = 30
    with h5py.File(data / "a.h5", "r") as file:
        assert file["x"][3] == 30
    undo()


@pytest.mark.parametrize("is_written", [False, True])
def test_hdf5_that_the_script_writes_is_not_locked(data: Path, is_written: bool) -> None:
    """A worker that stays open would keep the script from its own file."""
    path = data / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(8)
    script = data / "train.py"
    script.write_text(f"h5py.File(path, {'a' if is_written else 'r'!r})\n")
    process = Process(1, 0, None, stages={"read: h5py.File": StageTimes(9)})
    found = situation(processes=[process])
    found.capture.script = str(script)
    undo = file_handles.apply(found)
    with h5py.File(path, "r") as file:
        assert file["x"][3] == 3
    other = f"import h5py; h5py.File({str(path)!r}, 'a').close()"
    done = subprocess.run([sys.executable, "-c", other], capture_output=True, check=False)
    assert (done.returncode == 0) == is_written
    assert ("the script writes it" in str(found.notes)) == is_written
    undo()


def test_it_applies_where_files_are_opened_for_every_sample(tmp_path: Path) -> None:
    def reading(stage: str, count: int) -> Situation:
        process = Process(1, 0, None, samples=40, stages={stage: StageTimes(count)})
        return situation(processes=[process])

    assert file_handles.applies(reading("read: ZipFile", 40))[0]
    assert not file_handles.applies(reading("read: ZipFile", 1))[0]
    assert not file_handles.applies(reading("read: open", 40))[0]
    script = tmp_path / "train.py"
    script.write_text("data = np.memmap(path, mode='r')\n")
    found = situation()
    found.capture.script = str(script)
    assert file_handles.applies(found)[0]
