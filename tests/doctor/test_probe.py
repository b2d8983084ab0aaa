"""The storage probe on real files."""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import pytest

from slipstream.doctor import pages, probe
from slipstream.doctor.mount import find_mount, mount_of
from slipstream.doctor.probe import Rates, StorageProbe, describe, probe_storage
from slipstream.errors import UsageError

MEMORY = Path("/dev/shm")
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="the page cache of Linux")


def write(folder: Path, count: int, size: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = [folder / f"{number:03}.bin" for number in range(count)]
    for number, path in enumerate(files):
        with path.open("wb") as file:
            file.write(number.to_bytes(2, "little") * (size // 2))
            file.flush()
            os.fsync(file.fileno())  # dirty pages cannot be dropped
    return files


def rates(found: Rates) -> list[float]:
    return [rate for rate in dataclasses.astuple(found) if rate is not None]


def test_small_files(tmp_path: Path) -> None:
    files = write(tmp_path / "small", 60, 100_000)
    found = probe_storage(files, seconds=0.6)
    assert len(rates(found.warm)) == 3
    assert min(rates(found.warm)) > 20e6
    assert all(rate > 0 for rate in rates(found.cold))
    assert (found.random_read_bytes, found.reads_whole_files) == (100_000, True)
    assert found.open_ms is not None
    assert found.open_p95_ms is not None
    assert 0 < found.open_ms <= found.open_p95_ms
    assert found.failed == 0
    assert found.seconds < 5
    assert json.loads(json.dumps(dataclasses.asdict(found)))["depth"] == 4


def test_a_large_file_is_read_in_blocks(tmp_path: Path) -> None:
    files = write(tmp_path, 1, 24 << 20)
    found = probe_storage(files, seconds=0.6, threads=2)
    assert (found.random_read_bytes, found.reads_whole_files) == (128 << 10, False)
    assert len(rates(found.warm)) == 3


@LINUX_ONLY
def test_cold_is_slower_than_warm_where_it_is_claimed(tmp_path: Path) -> None:
    found = probe_storage(write(tmp_path, 1, 24 << 20), seconds=0.6)
    cold, warm = found.cold.sequential_bytes_per_s, found.warm.sequential_bytes_per_s
    if cold is None:
        pytest.skip("this filesystem does not say what is in its cache")
    assert warm is not None
    assert cold <= warm


@LINUX_ONLY
def test_memory_is_never_cold() -> None:
    folder = MEMORY / f"slipstream-test-{os.getpid()}"
    files = write(folder, 10, 100_000)
    try:
        found = probe_storage(files, seconds=0.3)
    finally:
        for path in files:
            path.unlink()
        folder.rmdir()
    assert rates(found.cold) == []
    assert len(rates(found.warm)) == 3
    assert found.mount is not None
    assert found.mount.kind == "tmpfs"
    assert "cold" not in describe(found)


def test_a_filesystem_without_a_page_cache_has_no_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "resident_share", lambda *_: 0.0)
    found = probe_storage(write(tmp_path, 10, 100_000), seconds=0.3)
    assert rates(found.cold) == []
    assert len(rates(found.warm)) == 3


def test_files_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    good = write(tmp_path, 4, 50_000)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    locked = tmp_path / "locked"
    locked.write_bytes(b"x")
    locked.chmod(0)
    odd = [tmp_path / name for name in ("empty", "pipe", "locked", "gone", "a/b")]
    found = probe_storage([*odd, tmp_path, Path("nul\0name"), *good], seconds=0.4)
    assert len(rates(found.warm)) == 3
    assert found.failed >= 3
    odd.remove(locked)  # root reads it
    nothing = probe_storage(odd, seconds=0.2)
    assert rates(nothing.cold) == rates(nothing.warm) == []
    assert describe(probe_storage([])) == "unknown filesystem: nothing could be read"


def test_files_may_vanish_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path, 20, 50_000)
    read_into = probe._read_into

    def remove_and_read(buffer: memoryview, fd: int, offset: int, length: int) -> int:
        for path in files[:10]:
            path.unlink(missing_ok=True)
        files[11].write_bytes(b"")
        if fd % 3 == 0:
            raise OSError("stale")
        return read_into(buffer, fd, offset, length)

    monkeypatch.setattr(probe, "_read_into", remove_and_read)
    found = probe_storage(files, seconds=0.4)
    assert rates(found.warm)
    assert found.failed >= 5


def test_slow_reads_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path, 30, 50_000)
    read_into = probe._read_into

    def read_slowly(buffer: memoryview, fd: int, offset: int, length: int) -> int:
        time.sleep(0.02)
        return read_into(buffer, fd, offset, length)

    monkeypatch.setattr(probe, "_read_into", read_slowly)
    found = probe_storage(files, seconds=0.5)
    assert found.seconds < 1.5
    assert len(rates(found.warm)) == 3
    assert found.warm.random_bytes_per_s == pytest.approx(50_000 / 0.02, rel=0.5)


def test_nothing_is_written(tmp_path: Path) -> None:
    files = write(tmp_path, 3, 50_000)
    for path in files:
        path.chmod(0o400)
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in files]
    probe_storage(files, seconds=0.2)
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in files] == before
    assert sorted(tmp_path.iterdir()) == files


def test_without_the_calls_of_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("posix_fadvise", "preadv", "RWF_NOWAIT"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(pages, "_libc", lambda: None)
    monkeypatch.setattr("slipstream.doctor.mount._TABLE", tmp_path / "none")
    found = probe_storage(write(tmp_path, 5, 50_000), seconds=0.3)
    assert rates(found.cold) == []
    assert len(rates(found.warm)) == 3


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="seconds=0"):
        probe_storage([], seconds=0)


@LINUX_ONLY
def test_pages_go_and_come(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 1, 5 << 20)
    with path.open("rb") as file:
        file.read()
        assert pages.resident_share(file.fileno(), 0, 5 << 20) == 1
        pages.drop_pages(file.fileno(), 1 << 20, 128 << 10)
        share = pages.resident_share(file.fileno(), 1 << 20, 128 << 10)
        if share:
            pytest.skip("this filesystem keeps its pages")
        os.pread(file.fileno(), 128 << 10, 1 << 20)
        assert pages.resident_share(file.fileno(), 1 << 20, 128 << 10) == 1


@LINUX_ONLY
def test_pages_of_other_peoples_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_is_told_the_truth", lambda _: False)
    monkeypatch.setattr(pages, "_mapped_share", lambda *_: 1.0)
    (path,) = write(tmp_path, 1, 400_000)
    with path.open("rb") as file:
        file.read()
        if pages.resident_share(file.fileno(), 0, 400_000) is None:
            pytest.skip("no reads that do not wait here")
        assert pages.resident_share(file.fileno(), 0, 400_000) == 1
        pages.drop_pages(file.fileno(), 0, 400_000)
        assert pages.resident_share(file.fileno(), 0, 400_000) in (0, 1)


TABLE = r"""
22 1 254:0 / / rw - ext4 /dev/root rw
23 22 0:5 / /proc rw - proc proc rw
30 22 0:40 / /data rw shared:1 master:2 - nfs4 server:/export rw
31 30 0:41 / /data/my\040set rw - fuse.gcsfuse bucket rw
32 22 0:42 / /mnt rw - xfs /dev/none rw
33 22 0:43 / /mnt rw - overlay overlay rw,lowerdir=/none:/other,upperdir=/proc/sys,workdir=/w
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind", "point", "remote"),
    [
        ("/data/1.jpg", "nfs4", "/data", True),
        ("/data/my set/1.jpg", "fuse.gcsfuse", "/data/my set", True),
        ("/database/1.jpg", "ext4", "/", False),
        ("/mnt/1.jpg", "overlay", "/mnt", False),
    ],
)
def test_mounts_are_found(path: str, kind: str, point: str, remote: bool) -> None:
    mount = find_mount(TABLE, Path(path))
    assert mount is not None
    assert (mount.kind, mount.point, mount.remote) == (kind, point, remote)


@LINUX_ONLY
def test_an_overlay_names_what_is_below() -> None:
    mount = find_mount(TABLE, Path("/mnt/1.jpg"))
    assert mount is not None
    assert mount.below == "proc"
    unknown = StorageProbe(mount, Rates(), Rates(random_bytes_per_s=8e6), 4)
    assert describe(unknown) == "overlay over proc on overlay: 8 MB/s warm"


def test_a_mount_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = mount_of(tmp_path)
    assert here is not None
    assert tmp_path.resolve().is_relative_to(here.point)
    monkeypatch.setattr("slipstream.doctor.mount._TABLE", tmp_path / "none")
    by_psutil = mount_of(tmp_path)
    assert by_psutil is not None
    assert (by_psutil.kind, by_psutil.point) == (here.kind, here.point)
