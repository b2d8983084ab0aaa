"""Crops from tile records against libjpeg-turbo's whole pictures."""

import json
import shutil
import subprocess
from pathlib import Path

from benchmarks.claim import Claim
from slipstream.cpu import usable_cores


def measure(program: Path, files: list[Path], place: Path) -> list[Claim]:
    """Run decode_rate.cpp, which interleaves all cases in one process."""
    folder = place / "flat"
    folder.mkdir()
    for number, file in enumerate(files):
        shutil.copyfile(file, folder / f"{number:06d}.jpg")
    threads = usable_cores()
    command = [str(program), str(folder), "9", str(threads)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    count, s = report["photos"], report["seconds"]

    def rates(*names: str) -> str:
        return " against ".join(f"{count / s[name]:,.0f}/s" for name in names)

    whole, all_whole = s["libjpeg_whole_1"], s["libjpeg_whole_n"]
    growth = 100 * (report["record_bytes"] / report["file_bytes"] - 1)
    return [
        Claim(
            "RandomResizedCrop from tiles against libjpeg-turbo's whole decode, 1 core",
            whole / s["tiles_crop_1"], rates("tiles_crop_1", "libjpeg_whole_1"), at_least=1.8,
        ),
        Claim(
            "the same from the JPEG file, not packed",
            whole / s["file_crop_1"], rates("file_crop_1", "libjpeg_whole_1"),
        ),
        Claim(
            "libjpeg-turbo's own crop and skip",
            whole / s["libjpeg_crop_1"], rates("libjpeg_crop_1", "libjpeg_whole_1"),
        ),
        Claim(
            f"checksum + crop + resize to 224 against bare whole decode, {threads} threads",
            all_whole / s["tiles_224_n"], rates("tiles_224_n", "libjpeg_whole_n"), at_least=1.6,
        ),
        Claim(
            f"the same from the JPEG file, not packed, {threads} threads",
            all_whole / s["file_224_n"], rates("file_224_n", "libjpeg_whole_n"),
        ),
        Claim(
            f"{threads} threads against 1",
            s["tiles_224_1"] / s["tiles_224_n"], rates("tiles_224_n", "tiles_224_1"),
            at_least=0.95 * threads if threads > 1 else None,
        ),
        Claim(
            "bytes of the records over those of the files",
            growth, f"{report['record_bytes']:,} against {report['file_bytes']:,}",
            at_most=1.0, unit="%",
        ),
    ]  # fmt: skip
