"""`slipstream.speed_up`: in place until the process ends, and only in the script's own."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.pictures import write_flat

pytestmark = pytest.mark.timeout(300)


def run(folder: Path, script: str) -> Any:
    (folder / "train.py").write_text(dedent(script))
    return subprocess.run(
        [sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_fixes_are_in_place_once_and_not_in_processes_of_the_script(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """\
        import multiprocessing
        import torch
        import slipstream

        slipstream.speed_up("zero-grad", "async-save")
        slipstream.speed_up("zero-grad")


        def look():
            print("child", hasattr(torch.nn.Module.zero_grad, "__wrapped__"))


        if __name__ == "__main__":
            print("once", hasattr(torch.nn.Module.zero_grad, "__wrapped__"))
            print("twice", hasattr(torch.nn.Module.zero_grad.__wrapped__, "__wrapped__"))
            child = multiprocessing.get_context("spawn").Process(target=look)
            child.start()
            child.join()
            torch.save({"x": torch.ones(3)}, "model.pt")
        """,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "child False", "once True", "twice False"]
    assert (tmp_path / "model.pt").stat().st_size > 0


def test_a_checkpoint_that_could_not_be_written_is_no_success(tmp_path: Path) -> None:
    """The disk fails while the file is under way, and no other save comes that could tell."""
    script = """\
        import torch
        import slipstream


        def full(*arguments):
            raise OSError(28, "No space left on device")


        torch.save = full
        slipstream.speed_up("async-save")
        torch.save({"x": torch.ones(5 << 20)}, "model.pt")
        print("the end", flush=True)
        """
    done = run(tmp_path, script)
    assert done.stdout == "the end\n"
    assert "No space left on device" in done.stderr
    assert done.returncode == 1
    assert run(tmp_path, script.replace("torch.save = full", "")).returncode == 0


_PICTURES = """\
import sys
import torch
from PIL import Image
from torch.utils.data import DataLoader
from tests.run.pictures_data import ByHand
from pathlib import Path
{line}
torch.manual_seed(0)
for pixels, _, is_late in DataLoader(ByHand(Path("pictures")), 4, num_workers={workers}):
    print(pixels.double().sum().item().hex())
    print(is_late.tolist(), file=sys.stderr)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_pictures_are_decoded_by_the_engine_with_the_same_bytes(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    write_flat(tmp_path / "pictures", 8)
    plain = run(tmp_path, _PICTURES.format(line="", workers=workers))
    line = 'import slipstream; slipstream.speed_up("native-pictures", "fast-loader")'
    fast = run(tmp_path, _PICTURES.format(line=line, workers=workers))
    assert plain.returncode == fast.returncode == 0, fast.stderr
    assert plain.stdout and plain.stdout == fast.stdout
    assert "True" not in plain.stderr and "True" in fast.stderr
