"""What docs/train.md shows runs, and says what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.train import curve, equivalence, micro_batch
from slipstream.train.switches import SWITCHES

PAGE = Path(__file__).parent.parent.parent / "docs" / "train.md"


@pytest.mark.slow
def test_the_python_of_the_page_runs(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    brief = "\n".join(blocks).replace("optimizer, batches)", "optimizer, batches, budget_s=3)")
    brief = brief.replace('precision="bf16", ', "")  # slow where a processor has none
    script = tmp_path / "page.py"
    script.write_text("import torch\ntorch.set_num_threads(1)\n" + brief, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "loading of data is not in these times" in done.stdout
    assert (tmp_path / "checkpoint.pt").exists()


def test_the_table_has_all_switches() -> None:
    text = PAGE.read_text(encoding="utf-8")
    told = dict.fromkeys(re.findall(r"^\| ([a-z0-9, -]+) \| (exact|mixed) \|", text, re.MULTILINE))
    names = {name: kind for row, kind in told for name in row.split(", ")}
    for switch in SWITCHES:
        assert names[re.sub(r"^compile .*", "compile", switch.name)] == switch.kind


def test_the_numbers_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"up to {curve.MOST} steps" in text
    assert f"too short for {curve.FEWEST} steps" in text
    assert f"has {micro_batch.KNEE:.0%} of the most samples per second".replace("%", " %") in text
    assert f"leaves {micro_batch.HEADROOM:.0%} of memory free".replace("%", " %") in text
    assert f"a cosine of {equivalence._COSINE}" in text
    assert f"below {equivalence._LOOSE.whole:.0%} for all".replace("%", " %") in text
    assert equivalence._MIXED.times == 3, "three times"
