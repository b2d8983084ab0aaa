"""`slipstream pack` against `jpegtran -optimize` on the same files and cores."""

import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.claim import Claim
from slipstream.cpu import usable_cores

ROUNDS = 5


def measure(files: list[Path], place: Path) -> list[Claim]:
    """Seconds for all files, start of the programs included on both sides."""
    what = "packing against jpegtran -optimize, same cores"
    if shutil.which("jpegtran") is None:
        return [Claim(what, None, "no jpegtran; apt-get install libjpeg-turbo-progs")]
    source = place / "source"
    source.mkdir()
    for number, file in enumerate(files):
        shutil.copyfile(file, source / f"{number:06d}.jpg")
    ours, theirs = [], []
    for number in range(ROUNDS):
        ours.append(_pack(source, place / f"{number}.slip"))
        theirs.append(_jpegtran(source, place / f"{number}.jpegtran"))
    mine, peer = statistics.median(ours), statistics.median(theirs)
    count = len(files)
    numbers = f"{count / mine:,.0f}/s against {count / peer:,.0f}/s"
    return [Claim(what, peer / mine, numbers, at_least=0.8)]


def _pack(source: Path, target: Path) -> float:
    command = [sys.executable, "-m", "slipstream.cli.main", "pack", str(source), str(target)]
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    took = time.perf_counter() - begin
    shutil.rmtree(target)
    return took


def _jpegtran(source: Path, target: Path) -> float:
    target.mkdir()

    def run(name: str) -> None:
        command = [
            "jpegtran",
            "-optimize",
            "-copy",
            "all",
            "-outfile",
            str(target / name),
            str(source / name),
        ]
        subprocess.run(command, check=True)

    names = sorted(path.name for path in source.iterdir())
    begin = time.perf_counter()
    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(run, names))
    for name in names:  # pack syncs what it writes
        with (target / name).open("rb") as file:
            os.fsync(file.fileno())
    took = time.perf_counter() - begin
    shutil.rmtree(target)
    return took
