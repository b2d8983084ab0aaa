"""The examples run, and give the same whenever they are run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import slipstream.cli.story
from slipstream.cli.model_target import load_model
from slipstream.cli.photos import write_photos
from slipstream.cli.story.trained import read_trained
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.pictures import jpeg

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPT = EXAMPLES / "train.py"


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


def test_the_model_is_one_for_the_shell() -> None:
    model = load_model(f"{EXAMPLES / 'net.py'}:make_model")
    assert not model.training
    assert model(torch.randn(8, 3, 64, 64)).shape == (8, 10)


def test_the_demo_has_the_example() -> None:
    own = Path(slipstream.cli.story.__file__).parent / "slow_train.py"
    assert own.read_bytes() == (EXAMPLES / "slow_train.py").read_bytes()


@pytest.mark.slow
def test_slow_training(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 20)
    runs, slow = [], EXAMPLES / "slow_train.py"
    for data in (["photos"], ["photos"], []):
        done = subprocess.run(
            [sys.executable, "-W", "error", str(slow), *data, "--epochs", "2"],
            cwd=tmp_path, check=False, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        runs.append(read_trained(done.stdout))
    assert runs[0].losses == runs[1].losses != runs[2].losses
    assert len(runs[0].losses) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
