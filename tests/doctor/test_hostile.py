"""Scripts that do what the recorder does not expect run under the doctor as they run without."""

import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from slipstream.doctor.capture import Capture
from slipstream.doctor.compare import load_report
from slipstream.doctor.report import next_command
from slipstream.doctor.text import print_report
from slipstream.errors import UsageError

BEGIN = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset

length = 3200

class Samples(Dataset):
    def __len__(self): return length
    def __getitem__(self, i): return torch.full((8,), float(i % 7)), i % 2

def train(x, y):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
LOOP = """
for x, y in DataLoader(Samples(), 8): train(x, y)
"""


def doctor(
    folder: Path, script: str, *options: str, name: str = "odd.py"
) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(script)
    return subprocess.run(
        [sys.executable, "-m", "slipstream", "doctor", *(options or ("--steps", "10")), name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def steps_in(report: Path) -> int:
    return int(json.loads(report.read_text())["steps"]["count"])


ODD = {
    "a dataset with __getitems__ alone": """
class Many:
    def __len__(self): return length
    def __getitems__(self, indices): return [Samples()[i] for i in indices]
for x, y in DataLoader(Many(), 8): train(x, y)
""",
    "classes that define what is equal": """
class Equal(DataLoader):
    def __eq__(self, other): return False
class Optimizer(torch.optim.SGD):
    def __eq__(self, other): return False
optimizer = Optimizer(model.parameters(), 0.1)
for x, y in Equal(Samples(), 8): train(x, y)
""",
    "parameters that are not there yet": """
model = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.ReLU(), torch.nn.LazyLinear(2))
model(torch.ones(1, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
""" + LOOP,
    "a batch that does not show what it holds": """
class Closed(dict):
    def items(self): raise RuntimeError("closed")
def collate(samples):
    return Closed(x=torch.stack([x for x, _ in samples]), y=torch.tensor([y for _, y in samples]))
for batch in DataLoader(Samples(), 8, collate_fn=collate): train(batch["x"], batch["y"])
""",
    "another folder": """
os.mkdir("elsewhere")
os.chdir("elsewhere")
assert os.path.isabs(__file__) and os.path.exists(__file__)
import inspect
assert "__getitem__" in inspect.getsource(Samples)
""" + LOOP,
    "a layer that is scripted": """
model = torch.nn.Sequential(torch.jit.script(torch.nn.Linear(8, 8)), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
""" + LOOP,
    "a convolution that gives two": """
class Two(torch.nn.Conv1d):
    def forward(self, x): return super().forward(x), x
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.two = Two(1, 1, 7)
    def forward(self, x): return self.two(x[:, None])[0][:, 0]
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
""" + LOOP,
}  # fmt: skip


def test_odd_scripts_are_watched(tmp_path: Path) -> None:
    """In one process, as each would need seconds to start."""
    report = tmp_path / "report.json"
    files = ("--full", "--json", str(report), "--html", str(tmp_path / "report.html"))

    ran = doctor(tmp_path, BEGIN + "length = 240" + "".join(ODD.values()), *files)

    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    assert steps_in(report) >= 10


def test_a_forked_child_ends_as_without_the_doctor(tmp_path: Path) -> None:
    fork = """
if os.fork() == 0:
    print("child", flush=True)
    sys.exit(3)
print("code", os.waitstatus_to_exitcode(os.wait()[1]))
"""

    ran = doctor(tmp_path, BEGIN + fork + LOOP)

    assert ran.stdout == "child\ncode 3\n"
    assert ran.stderr.count("The whole report") == 1, "the child made one, too"


def test_a_loop_on_one_batch_is_stopped(tmp_path: Path) -> None:
    one = """
x, y = next(iter(DataLoader(Samples(), 8)))
ends = time.monotonic() + 60
while time.monotonic() < ends: train(x, y)
print("to the end")
"""

    ran = doctor(tmp_path, BEGIN + one)

    assert ran.returncode == 0
    assert ran.stdout == ""


def test_a_loop_that_catches_everything_goes_on(tmp_path: Path) -> None:
    catches = """
batches, caught = iter(DataLoader(Samples(), 8)), 0
while True:
    try:
        x, y = next(batches)
    except StopIteration:
        break
    except BaseException:
        caught += 1
        continue
    train(x, y)
print("to the end", caught < 1000)
"""

    ran = doctor(tmp_path, BEGIN + catches)

    assert ran.stdout == "to the end True\n"
    assert steps_in(tmp_path / "report.json") >= 10


def test_what_a_killed_recording_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(BEGIN + "print('on', flush=True)\ntime.sleep(60)")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "slipstream", "doctor", "loop.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        left = list(tmp_path.glob("slipstream-doctor-*"))
        beside = doctor(tmp_path, "pass")
        assert beside.returncode == 0
        assert list(tmp_path.glob("slipstream-doctor-*")) == left, "a recording under way is kept"
        killed.send_signal(signal.SIGKILL)
    time.sleep(0.1)
    assert len(left) == 1

    doctor(tmp_path, "pass")

    assert not list(tmp_path.glob("slipstream-doctor-*"))


def sample_report() -> dict[str, object]:
    name = "a\x1b]0;owned\x07 [/b] [red].py"
    return {
        "verdict": f"A step takes 1.0 ms: {name}", "script": name, "step_ms": 1.0,
        "parts": {"forward": 1.0, "unattributed": 0.0},
        "findings": [
            {
                "rule": "no-workers", "title": f"title {name}", "where": f"{name}:3",
                "cost_ms": 1.0, "share": 1.0, "gain": None, "fix": f"fix {name}", "class": "E",
                "next": f"slipstream run {name}",
            }
        ],
        "ladder": [], "storage": [], "healthy": [], "overhead": {}, "ceiling_ms": None,
        "steps": {"count": 3, "low_ms": 1.0, "high_ms": 1.0},
    }  # fmt: skip


def test_names_are_neither_markup_nor_commands_to_the_terminal() -> None:
    out = StringIO()

    print_report(sample_report(), Console(file=out, width=200), page="[/b]\x1b[2J.html")

    assert "\x1b" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert out.getvalue().count("[/b]") >= 5


def test_the_next_command_can_be_pasted() -> None:
    from slipstream.doctor.finding import Finding

    finding = Finding("no-workers", "title", where=None, cost_ms=1.0, fix="fix", fix_class="E")

    command = next_command(finding, Capture("my scripts/a;b.py", {}, ""))

    assert command is not None
    assert command.endswith(" 'my scripts/a;b.py'")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema": NaN}', '"text"', "[]", ""])
def test_what_is_no_report_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)

    with pytest.raises(UsageError):
        load_report(tmp_path / "a.json")


def test_numbers_too_large_to_calculate_with_are_none(tmp_path: Path) -> None:
    report = {"schema": "slipstream.report/1", "verdict": "", "step_ms": 10**400}
    (tmp_path / "a.json").write_text(json.dumps(report))

    with pytest.raises(UsageError, match="step_ms"):
        load_report(tmp_path / "a.json")


def test_batches_of_old_epochs_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from slipstream.doctor.record import loaders
    from slipstream.doctor.record.session import Session

    monkeypatch.setattr(loaders, "_KEPT_BATCHES", 30)
    session = Session("epochs", steps=None, seconds=None)
    session.start()
    loader = torch.utils.data.DataLoader(torch.zeros(40, 1), 4)
    for _ in range(8):
        list(loader)
    capture = session.stop("error")

    assert [len(process.batches) for process in capture.processes] == [0, 0, 0, 0, 10, 10, 10, 10]
    assert sum(process.batch_count for process in capture.processes) == 80


def test_nothing_is_written_on_the_ladder(tmp_path: Path) -> None:
    writes = """
from pathlib import Path
count = 0
while True:
    for x, y in DataLoader(Samples(), 8):
        train(x, y)
        count += 1
        Path("path.txt").write_text(str(count))
        with open("open.txt", "w") as file: file.write(str(count))
        descriptor = os.open("os.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, str(count).encode())
        os.close(descriptor)
        torch.save(model.state_dict(), "model.part")
        os.replace("model.part", "model.pt")
"""

    ran = doctor(tmp_path, BEGIN + writes, "--steps", "10", "--examine")

    assert ran.returncode == 0, ran.stderr
    written = {(tmp_path / f"{name}.txt").read_text() for name in ("path", "open", "os")}
    assert written == {"15"}
    assert len(json.loads((tmp_path / "report.json").read_text())["ladder"]) == 4


def test_a_place_that_cannot_be_written_is_told_before_the_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('ran')")
    for option, place in (("--json", str(tmp_path)), ("--html", str(tmp_path / "no" / "r.html"))):
        done = subprocess.run(
            [sys.executable, "-m", "slipstream", "doctor", option, place, str(script)],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert "ran" not in done.stdout
        assert done.stderr.startswith("slipstream doctor: ")


def test_threads_that_feed_the_loop_do_not_keep_the_doctor(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import threading, time, torch\n"
        "from torch.utils.data import DataLoader\n"
        "def feed():\n"
        "    while True:\n"
        "        time.sleep(0.1)\n"
        "threading.Thread(target=feed).start()\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "while True:\n"
        "    for x in DataLoader(torch.randn(64, 4), 8):\n"
        "        optimizer.zero_grad()\n"
        "        model(x).sum().backward()\n"
        "        optimizer.step()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "slipstream", "doctor", "--steps", "10", str(script)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "report.html").exists()


def test_os_exit_gives_a_report_and_keeps_its_code(tmp_path: Path) -> None:
    leaves = """
if os.fork() == 0:
    os._exit(5)
print("child", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
for k, (x, y) in enumerate(DataLoader(Samples(), 8)):
    train(x, y)
    if k == 20:
        os._exit(7)
"""

    ran = doctor(tmp_path, BEGIN + leaves, "--full")

    assert ran.returncode == 7, ran.stderr
    assert ran.stdout == "child 5\n"
    assert ran.stderr.count("The whole report") == 1, "the child made one, too"
    assert steps_in(tmp_path / "report.json") >= 10
    assert (tmp_path / "report.html").exists()
    assert not list(tmp_path.glob("slipstream-doctor-*"))


IN_THREAD = """
import threading
def loop():
    while True:
        for x, y in DataLoader(Samples(), 8): train(x, y)
"""


def test_a_loop_in_a_thread_is_stopped_and_the_script_goes_on(tmp_path: Path) -> None:
    joins = """
thread = threading.Thread(target=loop)
thread.start()
thread.join()
print("joined")
sys.exit(3)
"""

    ran = doctor(tmp_path, BEGIN + IN_THREAD + joins)

    assert (ran.returncode, ran.stdout) == (3, "joined\n")
    assert "Exception in thread" not in ran.stderr
    assert steps_in(tmp_path / "report.json") >= 10


def test_a_loop_in_a_thread_that_nobody_joins_is_waited_for(tmp_path: Path) -> None:
    ran = doctor(tmp_path, BEGIN + IN_THREAD + "threading.Thread(target=loop).start()")

    assert ran.returncode == 0, ran.stderr
    assert steps_in(tmp_path / "report.json") >= 10


@pytest.mark.slow
def test_a_script_that_waits_for_ever_for_its_thread_is_left(tmp_path: Path) -> None:
    waits = """
done = threading.Event()
def work():
    loop()
    done.set()
threading.Thread(target=work).start()
done.wait()
"""

    ran = doctor(tmp_path, BEGIN + IN_THREAD + waits)

    assert ran.returncode == 0, ran.stderr
    assert steps_in(tmp_path / "report.json") >= 10


def test_an_error_in_the_users_dataset_shows_none_of_our_frames(tmp_path: Path) -> None:
    fails = """
class Broken(Samples):
    def __getitem__(self, i):
        if i == 80: raise KeyError("no such file")
        return super().__getitem__(i)
for x, y in DataLoader(Broken(), 8): train(x, y)
"""

    ran = doctor(tmp_path, BEGIN + fails)

    told = ran.stderr.partition("Traceback")[2].partition("A step takes")[0]
    assert ran.returncode == 1
    assert "in __getitem__" in told
    assert "KeyError: 'no such file'" in told
    assert "slipstream" not in told


def test_a_script_may_tell_of_its_errors_itself(tmp_path: Path) -> None:
    own = "import sys\nsys.excepthook = lambda kind, *_: print('own', kind.__name__)\n{}['x']\n"

    ran = doctor(tmp_path, own)

    assert (ran.returncode, ran.stdout) == (1, "own KeyError\n")
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_long_wait_for_the_first_step_is_told_once(tmp_path: Path) -> None:
    ran = doctor(tmp_path, "import time\ntime.sleep(5.5)\n")

    assert ran.returncode == 0
    assert ran.stderr.startswith("slipstream: waiting for the first step …\n")
    assert ran.stderr.count("waiting") == 1
    assert "→ Check that the script trains" in ran.stderr


def test_an_interrupt_leaves_a_report(tmp_path: Path) -> None:
    script = BEGIN + IN_THREAD + "threading.Thread(target=loop).start()\nprint('on', flush=True)\n"
    (tmp_path / "loop.py").write_text(script)
    command = [sys.executable, "-m", "slipstream", "doctor", "--full", "loop.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        time.sleep(2)
        running.send_signal(signal.SIGINT)
        try:
            assert running.wait(60) == 130
        finally:
            running.kill()
    assert (tmp_path / "report.json").exists()
    assert (tmp_path / "report.html").exists()
