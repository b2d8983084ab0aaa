"""Processes in which runtimes are tried: what they do there harms nobody."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

# OpenVINO says so before it says what.
_ABOUT_ITSELF = (
    "Exception from ",
    "Check '",
    "FrontEnd API failed",
    "Model wasn't fully converted",
)


class RuntimeFailed(Exception):
    """A runtime raised, crashed, hung, leaked, or gave no numbers in the process that tried it."""


def run_child(place: Path, module: str, title: str, limit_s: float) -> None:
    """`python -m module place/spec.json`, which leaves its results there, or `error.txt`. Raises
    `RuntimeFailed` that begins with the title. The process and those that it started are gone when
    this returns or raises.
    """
    code = _exit_code(place, module, limit_s)
    if code is None:
        raise RuntimeFailed(f"{title} was not done after {limit_s:g} s")
    if code != 0:
        raise RuntimeFailed(f"{title} {_how_it_ended(place, code)}")


def _exit_code(place: Path, module: str, limit_s: float) -> int | None:
    """None if it had to be ended."""
    path = os.pathsep.join(str(Path(each).absolute()) for each in sys.path)
    with (place / "output.txt").open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(place / "spec.json")],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=place,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(place)}, start_new_session=True,
        )  # fmt: skip
        try:
            return child.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            # OpenVINO leaves this for profilers, wherever temporary files are to be.
            with contextlib.suppress(OSError):
                Path(f"/tmp/perf-{child.pid}.map").unlink()


def _how_it_ended(place: Path, code: int) -> str:
    said = place / "error.txt"
    if said.exists():
        return f"raised {_what_matters(said.read_text(errors='replace'))}"
    if code < 0:
        return f"crashed: {signal.strsignal(-code) or -code}"
    lines = (place / "output.txt").read_text(errors="replace").strip().splitlines()
    return f"ended with exit code {code}: {lines[-1] if lines else 'no word'}"


def _what_matters(error: str) -> str:
    """The class of an error and the first line of it that is not about the runtime's own code."""
    name, *lines = [line.strip() for line in error.splitlines() if line.strip()] or ["an error"]
    told = next((line for line in lines if not line.startswith(_ABOUT_ITSELF)), "")
    return f"{name}: {told}" if told else name
