"""Packs that are killed at every step, and go on to the same bytes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.errors import UsageError
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from slipstream.store.verify import verify_dataset
from tests.pictures import write_flat

Fingerprint = Callable[[Path], dict[str, str]]
SHARD_BYTES = 14_000

# Kills its own process just before the n-th time that it opens for writing, renames, removes
# or makes something at the destination.
KILLER = """
import os, signal, sys
from pathlib import Path
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source

src, dst, append, left = sys.argv[1], sys.argv[2], sys.argv[3] == "append", int(sys.argv[4])
source = open_source(src)
pack_source  # imported before the counting starts

def watch(event, args):
    global left
    if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
        return
    if not str(args[0]).startswith(dst):
        return
    if event == "open" and not (isinstance(args[1], str) and "w" in args[1]):
        return
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
pack_source(source, dst, append=append, shard_bytes=int(sys.argv[5]), workers=1)
"""


def _run_killer(source: Path, dst: Path, mode: str, steps: int) -> int:
    command = [sys.executable, "-c", KILLER, str(source), str(dst), mode, str(steps)]
    command.append(str(SHARD_BYTES))
    return subprocess.run(command, check=False, timeout=60).returncode


@pytest.mark.slow
def test_killed_at_every_step(tmp_path: Path, fingerprint: Fingerprint) -> None:
    source = write_flat(tmp_path / "photos", 8)
    pack_source(open_source(source), tmp_path / "whole.slip", shard_bytes=SHARD_BYTES)
    whole = fingerprint(tmp_path / "whole.slip")
    assert len(whole) >= 4
    kills = 0
    for steps in range(100):
        dst = tmp_path / f"{steps}.slip"
        code = _run_killer(source, dst, "new", steps)
        if code == 0:
            break
        kills += 1
        assert code == -signal.SIGKILL
        assert not dst.exists()
        pack_source(open_source(source), dst, shard_bytes=SHARD_BYTES)
        assert fingerprint(dst) == whole
        assert not dst.with_name(dst.name + ".partial").exists()
    assert kills >= 12


@pytest.mark.slow
def test_append_killed_at_every_step(tmp_path: Path, fingerprint: Fingerprint) -> None:
    first = write_flat(tmp_path / "first", 2)
    second = write_flat(tmp_path / "second", 6)
    _packed(first, tmp_path / "whole.slip")
    old = fingerprint(tmp_path / "whole.slip")
    pack_source(open_source(second), tmp_path / "whole.slip", shard_bytes=SHARD_BYTES, append=True)
    whole = fingerprint(tmp_path / "whole.slip")
    kills = 0
    for steps in range(100):
        dst = tmp_path / f"{steps}.slip"
        _packed(first, dst)
        code = _run_killer(second, dst, "append", steps)
        if code == 0:
            break
        kills += 1
        assert code == -signal.SIGKILL
        # A reader sees the old dataset or the new one.
        assert list(verify_dataset(dst)) == []
        manifest = fingerprint(dst)["manifest.json"]
        assert manifest in (old["manifest.json"], whole["manifest.json"])
        pack_source(open_source(second), dst, shard_bytes=SHARD_BYTES, append=True)
        assert fingerprint(dst) == whole
        assert not dst.with_name(dst.name + ".partial").exists()
    assert kills >= 12


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path, fingerprint: Fingerprint) -> None:
    """A pack that is killed whenever it has made one more shard comes to the same end."""
    source = write_flat(tmp_path / "photos", 40, width=300, height=200)
    pack_source(open_source(source), tmp_path / "whole.slip", shard_bytes=100_000)
    dst, partial = tmp_path / "a.slip", tmp_path / "a.slip.partial"
    command = [sys.executable, "-m", "slipstream.cli.main", "pack", str(source), str(dst)]
    command += ["--shard-size", "100000"]
    kills = 0
    for wanted in (1, 3, 4, 9):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while process.poll() is None and len(list(partial.glob("*.slip"))) < wanted:
            assert time.monotonic() < deadline
        process.kill()
        kills += process.wait(60) == -signal.SIGKILL
    assert kills >= 1
    if not dst.exists():
        report = pack_source(open_source(source), dst, shard_bytes=100_000)
        assert report.continued > 0
        assert report.samples == 40
    assert fingerprint(dst) == fingerprint(tmp_path / "whole.slip")


def test_finished_shards_are_not_packed_again(tmp_path: Path, fingerprint: Fingerprint) -> None:
    source = write_flat(tmp_path / "photos", 8)
    pack_source(open_source(source), tmp_path / "whole.slip", shard_bytes=SHARD_BYTES)
    _interrupt(source, tmp_path / "a.slip")
    first = tmp_path / "a.slip.partial" / "00000.slip"
    before = first.stat().st_mtime_ns
    report = pack_source(open_source(source), tmp_path / "a.slip", shard_bytes=SHARD_BYTES)
    assert 0 < report.continued < 8
    assert (tmp_path / "a.slip" / "00000.slip").stat().st_mtime_ns == before
    assert fingerprint(tmp_path / "a.slip") == fingerprint(tmp_path / "whole.slip")


def test_damaged_leftovers_are_packed_again(tmp_path: Path, fingerprint: Fingerprint) -> None:
    source = write_flat(tmp_path / "photos", 8)
    pack_source(open_source(source), tmp_path / "whole.slip", shard_bytes=SHARD_BYTES)
    _interrupt(source, tmp_path / "a.slip")
    shard = tmp_path / "a.slip.partial" / "00000.slip"
    shard.write_bytes(shard.read_bytes()[:-10])
    report = pack_source(open_source(source), tmp_path / "a.slip", shard_bytes=SHARD_BYTES)
    assert report.continued == 0
    assert fingerprint(tmp_path / "a.slip") == fingerprint(tmp_path / "whole.slip")


def test_another_source_or_option_is_refused(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 8)
    _interrupt(source, tmp_path / "a.slip")
    with pytest.raises(UsageError, match=r"in: shard_bytes \(\d+ there, \d+ now\)\. Repeat"):
        pack_source(open_source(source), tmp_path / "a.slip", shard_bytes=SHARD_BYTES + 1)
    os.utime(source / "007.jpg", (1, 1))
    with pytest.raises(UsageError, match="differs in: source files"):
        pack_source(open_source(source), tmp_path / "a.slip", shard_bytes=SHARD_BYTES)
    assert (tmp_path / "a.slip.partial" / "00000.slip").is_file()


def test_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 1)
    (tmp_path / "a.slip.partial").mkdir()
    (tmp_path / "a.slip.partial" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="is no unfinished pack of this source"):
        pack_source(open_source(source), tmp_path / "a.slip")
    assert (tmp_path / "a.slip.partial" / "thesis.txt").is_file()


def _packed(source: Path, dst: Path) -> None:
    pack_source(open_source(source), dst, shard_bytes=SHARD_BYTES)


def _interrupt(source: Path, dst: Path) -> None:
    """Leave a partial folder with some finished shards."""

    class Stop(Exception):
        pass

    def stop(done: int, total: int | None) -> None:
        if done == 7:
            raise Stop

    with pytest.raises(Stop):
        pack_source(open_source(source), dst, shard_bytes=SHARD_BYTES, progress=stop)
    assert list(dst.with_name(dst.name + ".partial").glob("*.tmp")) == []
    assert (dst.with_name(dst.name + ".partial") / "00000.slip").is_file()
