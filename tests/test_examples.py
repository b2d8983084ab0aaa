"""examples/train.py runs, packed or not, and gives the same whenever it is run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.pictures import jpeg

SCRIPT = Path(__file__).parent.parent / "examples" / "train.py"


def train(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT), *arguments, "--epochs", "1"],
        cwd=folder, check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip


@pytest.mark.slow
def test_training_packed_or_not(tmp_path: Path) -> None:
    for number in range(40):
        place = tmp_path / "pictures" / f"class{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:02d}.jpg").write_bytes(jpeg(120, 110, number))
    pack_source(open_source(tmp_path / "pictures"), tmp_path / "pictures.slip")
    told = set()
    for data in ("pictures", "pictures.slip", "pictures.slip"):
        done = train(tmp_path, data, "--batch-size", "4", "--decode", "cpu")
        assert done.returncode == 0, done.stderr
        assert "decode: on the processor (as given)" in done.stdout
        told |= set(re.findall(r"accuracy \d+%", done.stdout))
    assert len(told) == 1, told
    refused = train(tmp_path, "pictures.slip", "--decode", "nobody")
    assert refused.returncode == 2 and "invalid choice: 'nobody'" in refused.stderr
