"""Processes that a trial starts are in its sandbox, and see what it sees."""

from pathlib import Path

import pytest

from tests.run.sandbox_kit import in_trial, make_home

pytestmark = pytest.mark.timeout(120)

_WORKER = """
import multiprocessing, os, sys
from pathlib import Path
import torch

def work(rank):
    print(Path("seen.txt").read_text(), os.path.exists("data/a.txt"), flush=True)
    torch.save({"a": 1}, "model.pt")
    with open("log.txt", "a") as file:
        file.write("worker")
    os.remove("data/below/b.txt")
"""
_MAIN = """
if __name__ == "__main__":
    Path("seen.txt").write_text("seen")
    os.remove("data/a.txt")
    {start}
    print(Path("log.txt").read_text().split(), torch.load("model.pt"), os.listdir("data/below"))
"""
_STARTS = {
    "spawn": "torch.multiprocessing.spawn(work)",
    **{
        method: f"""
    process = multiprocessing.get_context({method!r}).Process(target=work, args=(0,))
    process.start()
    process.join()
    assert process.exitcode == 0"""
        for method in ("forkserver", "fork")
    },
}


@pytest.mark.parametrize("method", _STARTS)
def test_processes_of_multiprocessing(tmp_path: Path, method: str) -> None:
    code = _WORKER + _MAIN.format(start=_STARTS[method])
    said = in_trial(make_home(tmp_path), code, script=True)
    assert said.splitlines() == ["seen False", "['line', 'worker'] {'a': 1} []"]


def test_a_script_that_starts_itself_anew(tmp_path: Path) -> None:
    said = in_trial(
        make_home(tmp_path),
        """
        import subprocess
        starts = [
            lambda: os.execv(sys.executable, [sys.executable, "-c", "open('out', 'w')"]),
            lambda: os.execve(sys.executable, [sys.executable], {}),
            lambda: os.execlp("touch", "touch", "out"),
            lambda: os.execvpe(file="touch", args=["touch", "out"], env=dict(os.environ)),
        ]
        for start in starts:
            try:
                start()
            except RuntimeError as error:
                print(error)
        print(os.spawnlp(os.P_WAIT, "true", "true"), subprocess.run(["true"]).returncode)
        """,
    )
    line = "a trial cannot follow a script that starts itself anew"
    assert said.splitlines() == [*[line] * 4, "0 0"]


def test_a_program_starts_in_a_folder_that_the_trial_has_made(tmp_path: Path) -> None:
    said = in_trial(
        make_home(tmp_path),
        """
        import subprocess
        os.makedirs("made/here")
        print(subprocess.run(["ls", ".."], cwd="made/here", capture_output=True).stdout)
        print(subprocess.run(["ls"], cwd="data", capture_output=True).stdout)
        """,
    )
    assert said.splitlines() == [str(b"here\n"), str(b"a.txt\nbelow\n")]
