"""How good the doctor is with a GPU: `python -m tests.doctor.score_gpu [--part 1/3] [names…]`.

The scripts of tests/scripts_gpu, in the table of tests.doctor.score. Each runs in a process of its
own that is forked from this one, which has imported torch and not touched the device: importing
takes longer than most of the scripts. `--fresh` starts Python anew for each.
"""

import argparse
import functools
import multiprocessing
import os
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from tests.doctor import score, scripts

SCRIPTS = Path(__file__).parent.parent / "scripts_gpu"
_TIMEOUT_S = 120


def run_forked(arguments: list[str], under: str | None = None) -> str:
    """As `scripts._run`: `-m module` or a script, with arguments; what it printed."""
    assert under is None, f"{under}: needs a process of its own, by --fresh"
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = multiprocessing.get_context("fork").Process(
            target=_be_main, args=(arguments, out.fileno(), err.fileno())
        )
        process.start()
        process.join(_TIMEOUT_S)
        if process.is_alive():
            process.kill()
            process.join()
        for file in (out, err):
            file.seek(0)
        assert process.exitcode == 0, f"{arguments}: {process.exitcode}\n{err.read()[-2000:]}"
        return out.read()


def _be_main(arguments: list[str], out: int, err: int) -> NoReturn:
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    os.chdir(scripts.SCRIPTS)
    is_module = arguments[0] == "-m"
    sys.argv = arguments[1:] if is_module else arguments
    sys.path.insert(0, str(scripts.SCRIPTS))
    try:
        if is_module:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(0)


def use_gpu_scripts(*, fresh: bool = False, times: int = 1) -> None:
    """Let the functions of `scripts` and `score` work on those for a GPU."""
    scripts.SCRIPTS = SCRIPTS
    score.measured_step_ms = functools.partial(scripts.measured_step_ms, times=times)
    if not fresh:
        import torch  # noqa: F401

        scripts._run = run_forked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--part", default="1/1", help="2/3: the second third of the pairs")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--times", type=int, default=1, help="runs of which the best counts")
    asked = parser.parse_args()
    use_gpu_scripts(fresh=asked.fresh, times=asked.times)
    part, parts = map(int, asked.part.split("/"))
    pairs = sorted({path.stem.rpartition("_")[0] for path in scripts.all_scripts()})
    wanted = [name for name in pairs if not asked.names or any(a in name for a in asked.names)]
    began = time.monotonic()
    score.score_all([f"{name}_" for name in wanted[part - 1 :: parts]] or ["no such script"])
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
