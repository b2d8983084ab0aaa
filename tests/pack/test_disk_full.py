"""A disk that is full: one clear error, nothing half-finished, and the pack can go on."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipstream.errors import StorageError
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.pictures import write_flat

Fingerprint = Callable[[Path], dict[str, str]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk(small_disk: Path, tmp_path: Path, fingerprint: Fingerprint) -> None:
    source = write_flat(tmp_path / "photos", 40, width=300, height=200)
    (small_disk / "ballast").write_bytes(bytes(200_000))
    dst = small_disk / "a.slip"
    with pytest.raises(StorageError, match=r"No space left to write .*free some space and repeat"):
        pack_source(open_source(source), dst, shard_bytes=100_000)
    partial = small_disk / "a.slip.partial"
    assert not dst.exists()
    assert list(partial.glob("*.tmp")) == []
    finished = sorted(path.name for path in partial.glob("*.slip"))
    assert finished
    (small_disk / "ballast").unlink()
    with pytest.raises(StorageError):
        pack_source(open_source(source), dst, shard_bytes=100_000)
    assert len(list(partial.glob("*.slip"))) > len(finished)
    subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
    report = pack_source(open_source(source), dst, shard_bytes=100_000)
    assert report.continued > 0
    pack_source(open_source(source), tmp_path / "whole.slip", shard_bytes=100_000)
    assert fingerprint(dst) == fingerprint(tmp_path / "whole.slip")


def test_limit_on_file_size(tmp_path: Path) -> None:
    """The same refusal from another side: files may not grow beyond 50 kB."""
    source = write_flat(tmp_path / "photos", 10, width=300, height=200)
    script = (
        "import resource, sys\n"
        "from slipstream.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        f"sys.argv = ['slipstream', 'pack', {str(source)!r}, {str(tmp_path / 'a.slip')!r}]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("slipstream pack: No space left to write")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "a.slip").exists()
    assert not (tmp_path / "a.slip.partial").exists()
