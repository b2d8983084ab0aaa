"""What docs/augment.md shows runs."""

import re
import subprocess
import sys
from pathlib import Path

import slipstream
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.loader.test_augment import Scenes
from tests.pictures import write_flat

PAGE = Path(__file__).parent.parent / "docs" / "augment.md"


def test_the_python_of_the_page_runs(tmp_path: Path) -> None:
    write_flat(tmp_path / "photos", 70)
    pack_source(open_source(tmp_path / "photos"), tmp_path / "train.slip")
    fields = dict.fromkeys(Scenes()[1], "auto") | {"depth": "ragged", "boxes": "ragged"}
    slipstream.pack_dataset(Scenes(), tmp_path / "scenes.slip", fields=fields)
    # A picture field beside image and mask would be cropped like a picture.
    text = PAGE.read_text(encoding="utf-8").replace('"scenes.slip"', '"scenes.slip", fields=FIELDS')
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    first = 'FIELDS = ["image", "mask", "boxes", "points", "label"]\n'
    last = "print(batch['mask'].shape, batch['image'].dtype, len(kept))\n"
    script = tmp_path / "page.py"
    script.write_text(first + "\n".join(blocks) + last, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (
        "on whole batches: ColorJitter, ToTensor, Normalize, RandomErasing(p=0.25)" in done.stdout
    )
    assert "torch.Size([4, 64, 64]) torch.float32 4" in done.stdout
