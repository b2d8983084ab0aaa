"""What the README shows runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from slipstream.cli.main import app
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
TEXT = README.read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    write_flat(tmp_path / "photos", 30)
    pack_source(open_source(tmp_path / "photos"), tmp_path / "train.slip")
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 5
    script = tmp_path / "readme.py"
    script.write_text("\n".join([TRAIN, *blocks]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[30, 3, 224, 224]" in done.stdout
    assert "A step takes" in done.stdout
    assert "eager" in done.stdout


def test_its_commands_and_options_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = re.findall(r"(?:^|`)slipstream (\w+)([^`\n#]*)", TEXT, re.MULTILINE)
    assert {
        "demo",
        "doctor",
        "run",
        "pack",
        "verify",
        "info",
        "export",
        "compare",
        "optimize",
        "lint",
    } <= {name for name, _ in shown}
    for name, rest in shown:
        assert name in commands, name
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r"(?<= )--[\w-]+", rest)) <= known, (name, rest)


def test_its_links_and_files_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    files = re.findall(r"\bexamples/\w+\.py", TEXT)
    assert len(links) > 10 and "examples/slow_train.py" in files
    for name in [*links, *files]:
        assert (README.parent / name).exists(), name


def test_the_first_screen_has_the_demo_and_what_it_measured() -> None:
    first = TEXT.split("\n## ")[0]
    assert first.index("pip install .") < first.index("slipstream demo") < first.index("as written")
    rows = re.findall(r"^\| ([\d.]+) \u00d7 \| .*? \| ([\d,]+) \| [\d.,]+ \|$", first, re.MULTILINE)
    rates = [float(rate.replace(",", "")) for _, rate in rows]
    assert len(rows) == 3
    for (ratio, _), rate in zip(rows, rates, strict=True):
        assert float(ratio) == pytest.approx(rate / rates[0], abs=0.06)
