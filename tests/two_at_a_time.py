"""The whole suite in two processes of pytest at a time; what fails there is run again alone, and
that counts: some tests need a core to themselves.

    python -m tests.two_at_a_time

No part waits without an end: one that does not come back is stopped, and run again alone.
"""

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

_PARTS = 16
_LIMIT_S = 30 * 60
_STUCK_S = 600  # where pytest's own limit of a test was not heard
_SUMMARY = re.compile(r"(=+ )?\d+ \w+.* in \d+\.\d+s")
_MOST_LINES = 100

_ROOT = Path(__file__).parent.parent
_LOGS = _ROOT / "build" / "tests"


def main() -> int:
    # Where a shell runs this in the background, or nohup does, these are ignored, and tests would
    # inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    files = sorted(str(path.relative_to(_ROOT)) for path in _ROOT.glob("tests/**/test_*.py"))
    _LOGS.mkdir(parents=True, exist_ok=True)
    shown = _LOGS.relative_to(_ROOT)
    print(f"{len(files)} files of tests in {_PARTS} parts; what they say: {shown}", flush=True)
    with ThreadPoolExecutor(2) as two:
        codes = list(two.map(lambda part: _run(part, files[part::_PARTS]), range(_PARTS)))
    again = [part for part in range(_PARTS) if codes[part] != 0]
    codes = [_run_alone(part, files[part::_PARTS]) for part in again]
    return int(any(codes))  # that of a process that a signal has ended is below zero


def _run(part: int, files: list[str]) -> int:
    start = time.monotonic()
    log = _LOGS / f"part-{part}.txt"
    with log.open("w") as out:
        code = _pytest(part, ["--quiet", "--cache-clear", *files], out=out)
    lines = log.read_text(errors="replace").splitlines()
    shown = [line for line in lines if line.startswith(("FAILED", "ERROR"))] + lines[-1:]
    if not any(_SUMMARY.match(line) for line in lines[-1:]):
        shown = lines[-_MOST_LINES:]  # it did not come to its end: where its threads stand
    said = "\n".join(shown)
    print(f"part {part} of {_PARTS}, {time.monotonic() - start:.0f} s: {said}", flush=True)
    return code


def _run_alone(part: int, files: list[str]) -> int:
    """Without failures on record, as of a part that was stopped, pytest takes all files."""
    print(f"again, alone: what failed in part {part}", flush=True)
    return _pytest(part, ["--last-failed", *files], out=None)


def _pytest(part: int, args: list[str], *, out: IO[str] | None) -> int:
    command = [
        sys.executable, "-m", "pytest", *args,
        "-o", f"cache_dir={_LOGS / f'cache-{part}'}",
        "-o", f"faulthandler_timeout={_STUCK_S}", "-o", "faulthandler_exit_on_timeout=true",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, check=False, cwd=_ROOT, stdout=out, stderr=subprocess.STDOUT, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        print(f"part {part} was stopped after {_LIMIT_S} s", flush=True)
        return 124
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
