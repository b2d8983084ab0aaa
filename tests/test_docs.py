"""What docs/augment.md shows runs."""

import inspect
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import slipstream
from slipstream import augment
from slipstream.augment import CenterCrop, ToTensor
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.loader.test_augment import Scenes
from tests.pictures import jpeg, write_flat

PAGE = Path(__file__).parent.parent / "docs" / "augment.md"


def test_the_python_of_the_page_runs(tmp_path: Path) -> None:
    write_flat(tmp_path / "photos", 70)
    pack_source(open_source(tmp_path / "photos"), tmp_path / "train.slip")
    kinds = dict.fromkeys(Scenes()[1], "auto") | {"depth": "ragged", "boxes": "ragged"}
    slipstream.pack_dataset(Scenes(), tmp_path / "scenes.slip", fields=kinds)
    # A picture field beside image and mask would be cropped like a picture.
    text = PAGE.read_text(encoding="utf-8").replace('"scenes.slip"', '"scenes.slip", fields=FIELDS')
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 5
    write_scenes(tmp_path / "scenes")
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
    packed = slipstream.open_dataset(tmp_path / "packed.slip")
    assert packed.column("image", "coding").all(), "in tiles"
    check_tar(text, tmp_path)


def write_scenes(folder: Path) -> None:
    folder.mkdir()
    for number in range(8):
        name = folder / f"{number:03d}"
        name.with_suffix(".jpg").write_bytes(jpeg(80 + number, 70, number))
        mask = np.full((70, 80 + number), number, dtype=np.uint8)
        Image.fromarray(mask).save(name.with_suffix(".mask.png"))
        np.save(name.with_suffix(".boxes.npy"), np.ones((number, 4), dtype=np.float32))


def check_tar(text: str, folder: Path) -> None:
    """The recipe, as far as the machine's tar can sort."""
    [commands] = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    if "GNU" not in subprocess.check_output(["tar", "--version"], text=True):
        return
    commands = commands.replace("slipstream pack", f"{sys.executable} -m slipstream pack")
    subprocess.run(["bash", "-ec", commands], cwd=folder, check=True, capture_output=True)
    transform = slipstream.Augment(
        CenterCrop(64), ToTensor(), masks=["mask.png"], boxes=["boxes.npy"]
    )
    dataset = slipstream.open_dataset(folder / "tarred.slip")
    batch = next(iter(slipstream.Loader(dataset, 8, transform=transform)))
    assert batch["jpg"].shape == (8, 3, 64, 64)
    assert [int(mask.max()) for mask in batch["mask.png"]] == list(range(8))
    assert [len(boxes) for boxes in batch["boxes.npy"]] == list(range(8))


def test_the_table_of_ops_has_their_arguments_and_defaults() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## The ops")[1].split("\n## ")[0]
    told: dict[str, str] = {}
    for row in re.findall(r"^\| (`.*)$", section, re.MULTILINE):
        names, arguments = row.split(" | ")[:2]
        told |= dict.fromkeys(re.findall(r"`(\w+)`", names), arguments.strip(" `|"))
    assert sorted(told) == sorted(augment.__all__)
    for name, arguments in told.items():
        op = getattr(augment, name)
        shown = eval(f"lambda {arguments.replace('…', 'None')}: 0", {"torch": torch})
        assert inspect.getfullargspec(shown).args == [f.name for f in fields(op)], name
        given = [f.default for f in fields(op) if f.default is not MISSING]
        assert list(inspect.getfullargspec(shown).defaults or ()) == given, name
