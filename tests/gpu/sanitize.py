"""The GPU engine's kernels under NVIDIA's compute-sanitizer:  python -m tests.gpu.sanitize

Decodes sound and damaged pictures; memcheck looks for reads and writes outside of buffers,
racecheck for threads that disturb each other. Ends with 1 if anything was found.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import slipstream
from slipstream.augment import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, ToTensor
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.loader.damage import damage
from tests.pictures import jpeg

_TOOLS = ("memcheck", "racecheck")


def main() -> int:
    """Run this file under each tool."""
    results = []
    for tool in _TOOLS:
        # Errors of calls are not asked for: loading a library tries what a driver may not have.
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1"]
        command += ["--report-api-errors", "no"] if tool == "memcheck" else []
        done = subprocess.run(
            [*command, sys.executable, "-m", __spec__.name, "decode"], check=False
        )
        print(tool, "found nothing" if done.returncode == 0 else "FOUND SOMETHING")
        results.append(done.returncode)
    return int(any(results))


def decode() -> None:
    """Batches of many kinds; what is damaged is left out."""
    with tempfile.TemporaryDirectory() as place:
        folder, packed = Path(place) / "photos", Path(place) / "photos.slip"
        folder.mkdir()
        for number in range(48):
            picture = jpeg(40 + 9 * number, 500 - 10 * number, number)
            (folder / f"{number:02d}.jpg").write_bytes(picture)
        pack_source(open_source(folder), packed)
        damage(packed, "image", list(range(0, 48, 3)), byte=900)
        dataset = slipstream.open_dataset(packed)
        for transform in (
            [RandomResizedCrop(64), RandomHorizontalFlip()],
            [RandomResizedCrop(224, interpolation="bicubic"), ToTensor()],
            [Resize(300), CenterCrop(280)],
        ):
            loader = slipstream.Loader(
                dataset, 16, transform=transform, device="cuda", decode="gpu", on_error="skip"
            )
            for batch in loader:
                assert np.isfinite(batch["image"].float().mean().item())
    torch.cuda.synchronize()


if __name__ == "__main__":
    if sys.argv[1:] == ["decode"]:
        decode()
    else:
        sys.exit(main())
