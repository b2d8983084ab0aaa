"""What the README shows runs."""

import re
import subprocess
import sys
from pathlib import Path

from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.pictures import write_flat

TRAIN = """
import torch

def train():
    model = torch.nn.Linear(4, 1)
    for batch in torch.utils.data.DataLoader(torch.randn(64, 4), 8):
        model(batch).sum().backward()
"""
README = Path(__file__).parent.parent / "README.md"


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    write_flat(tmp_path / "photos", 30)
    pack_source(open_source(tmp_path / "photos"), tmp_path / "train.slip")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    script = tmp_path / "readme.py"
    script.write_text("\n".join([TRAIN, *blocks]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[30, 3, 224, 224]" in done.stdout
    assert "A step takes" in done.stdout
