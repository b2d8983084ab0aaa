"""Scripts run under the doctor as they run without it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LOOP = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 3200
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.randn(8), i % 2

if __name__ == "__main__":
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    options = {options}
    for x, y in DataLoader(Slow(), 8, **options):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print("the end", *sys.argv[1:])
"""


def doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slipstream", "doctor", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def write(folder: Path, options: dict[str, Any]) -> None:
    (folder / "loop.py").write_text(LOOP.replace("{options}", repr(options)))


def report_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2},
        {"num_workers": 1, "multiprocessing_context": "spawn"},
        {"num_workers": 1, "multiprocessing_context": "forkserver"},
    ],
)
def test_parts_add_up_and_waits_are_found(tmp_path: Path, options: dict[str, Any]) -> None:
    write(tmp_path, options)
    done = doctor(tmp_path, "--steps", "20", "--capture", "capture.json", "loop.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""  # it was stopped before its end
    report = report_of(tmp_path)
    assert sum(report["parts"].values()) == pytest.approx(report["step_ms"])
    capture = json.loads((tmp_path / "capture.json").read_text())
    (loader,) = capture["loaders"]
    assert loader["made_at"] == "loop.py:15"
    readers = [p for p in capture["processes"] if p["batch_count"]]
    assert len(readers) == max(1, options["num_workers"])
    for process in readers:
        dataset = process["stages"]["dataset"]
        assert dataset["wall"] / dataset["count"] > 0.9e6  # the sleep
        assert dataset["cpu"] < dataset["wall"] / 2
    waited = report["parts"]["loading"]
    rest = report["step_ms"] - waited  # more than usual beside other tests, and then less is left
    assert waited > 0.5 * (8 / max(1, options["num_workers"]) - rest)
    assert (tmp_path / "report.html").stat().st_size > 50_000
    assert not list(tmp_path.glob("slipstream-doctor-*"))


def test_its_output_and_arguments_are_its_own(tmp_path: Path) -> None:
    write(tmp_path, {"num_workers": 0})
    text = (tmp_path / "loop.py").read_text().replace("3200", "80")
    (tmp_path / "loop.py").write_text(text)
    done = doctor(tmp_path, "--full", "loop.py", "--steps", "7")
    assert done.stdout == "the end --steps 7\n"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("code", "expected", "said"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("import sys; sys.exit('no data')", 1, "no data\n"),
        ("def f():\n    raise ValueError('mine')\nf()", 1, "ValueError: mine\n"),
    ],
)
def test_its_end_is_its_own(tmp_path: Path, code: str, expected: int, said: str) -> None:
    (tmp_path / "ends.py").write_text(code)
    done = doctor(tmp_path, "ends.py")
    assert done.returncode == expected
    assert said in done.stderr
    assert "slipstream/doctor" not in done.stderr
    if "mine" in said:
        # As Python says it.
        assert f'File "{tmp_path / "ends.py"}", line 2, in f' in done.stderr


def test_modules(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "job.py").write_text("import sys\nprint(__name__, __package__, sys.argv[1:])\n")
    done = doctor(tmp_path, "-m", "package.job", "a", "--b")
    assert done.stdout == "__main__ package ['a', '--b']\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give the script"),
        (("missing.py",), "Cannot read the script missing.py"),
        (("broken.py",), "broken.py is no Python script"),
        (("-m", "no_package.train"), "There is no module no_package.train"),
        (("-m", ".train"), "There is no module .train"),
        (("--full", "--examine", "loop.py"), "--full lets the script go on"),
        (("--step", "9", "loop.py"), "There is no option --step. Did you mean --steps?"),
        (("--colour", "loop.py"), "slipstream doctor --help lists all"),
    ],
)
def test_what_cannot_be_run(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    write(tmp_path, {})
    (tmp_path / "broken.py").write_text("def f(:")
    done = doctor(tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_the_ladder(tmp_path: Path) -> None:
    write(tmp_path, {"num_workers": 1})
    text = (
        (tmp_path / "loop.py")
        .read_text()
        .replace(
            "        optimizer.step()\n",
            "        optimizer.step()\n        torch.save(model, 'saved.pt')\n"
            "        print('step')\n"
            "        open('log.txt', 'a').write('x')\n",
        )
    )
    (tmp_path / "loop.py").write_text(text)
    done = doctor(tmp_path, "--steps", "10", "--examine", "loop.py")
    assert done.returncode == 0, done.stderr
    ladder = {rung["name"]: rung["ms"] for rung in report_of(tmp_path)["ladder"]}
    assert list(ladder) == [
        "cached batch", "collate and hand-over", "the same samples again", "files not in memory",
    ]  # fmt: skip
    assert ladder["cached batch"] < ladder["the same samples again"]
    assert report_of(tmp_path)["ceiling_ms"] == pytest.approx(ladder["cached batch"])
    # What it writes while it climbs is kept out.
    steps = done.stdout.count("step")
    assert steps <= 10 + 6
    assert len((tmp_path / "log.txt").read_text()) == steps


def test_the_ladder_needs_more_than_an_epoch(tmp_path: Path) -> None:
    write(tmp_path, {"num_workers": 0})
    text = (tmp_path / "loop.py").read_text().replace("3200", "100").replace("0.001", "0.004")
    text = text.replace("in DataLoader(Slow(), 8, **options)", "in forever(DataLoader(Slow(), 8))")
    endless = "\ndef forever(loader):\n    while True: yield from loader\n"
    (tmp_path / "loop.py").write_text(text.replace("\nif __name__", f"{endless}\nif __name__"))
    done = doctor(tmp_path, "--steps", "10", "--examine", "loop.py")
    assert done.returncode == 0, done.stderr
    ladder = {rung["name"]: rung["ms"] for rung in report_of(tmp_path)["ladder"]}
    assert ladder["collate and hand-over"] < 20 < ladder["the same samples again"]


def test_warnings_name_the_script(tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text(
        "import torch, warnings\n"
        "model = torch.nn.Linear(2, 1)\n"
        "for _ in range(3):\n"
        "    loss = model(torch.ones(2)).sum()\n"
        "    loss.backward()\n"
        "    float(loss)\n"
        "warnings.warn('own')\n"
    )
    done = doctor(tmp_path, "warns.py")
    assert f"{tmp_path}/warns.py:6: UserWarning: Converting a tensor" in done.stderr
    assert f"{tmp_path}/warns.py:7: UserWarning: own" in done.stderr
    assert "slipstream/doctor" not in done.stderr


def test_the_report_is_there_though_nobody_reads_the_screen(tmp_path: Path) -> None:
    write(tmp_path, {"num_workers": 0})
    command = f"'{sys.executable}' -m slipstream doctor --steps 5 loop.py 2>&1 | head -n 1"
    subprocess.run(command, shell=True, cwd=tmp_path, check=True, timeout=100)
    assert report_of(tmp_path)["step_ms"] > 0
    assert (tmp_path / "report.html").exists()


def test_a_script_that_fails_is_said_to(tmp_path: Path) -> None:
    write(tmp_path, {"num_workers": 0})
    text = (tmp_path / "loop.py").read_text()
    failing = "        optimizer.step()\n        assert 64 not in index, 'mine'\n"
    text = text.replace("i % 2", "i % 2, i").replace("x, y in", "x, y, index in")
    (tmp_path / "loop.py").write_text(text.replace("        optimizer.step()\n", failing))
    done = doctor(tmp_path, "loop.py")
    assert done.returncode == 1
    assert "AssertionError: mine" in done.stderr
    assert "The script failed: this is what was seen until then." in report_of(tmp_path)["notes"]


def test_check(tmp_path: Path) -> None:
    write(tmp_path, {"num_workers": 0})
    assert doctor(tmp_path, "--steps", "15", "--check", "loop.py").returncode == 1


def test_hostile_names(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>.py"
    (tmp_path / name).write_text("print('fine')")
    done = doctor(tmp_path, name)
    assert done.stdout == "fine\n"
    assert "<img src=x" not in (tmp_path / "report.html").read_text().split("</head>")[1]


def test_ranks_write_reports_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, {"num_workers": 0})
    environment = {**os.environ, "RANK": "1", "WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "slipstream", "doctor", "--steps", "10", "loop.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    assert done.stderr == ""
    assert (tmp_path / "report-rank1.json").exists() and not (tmp_path / "report.json").exists()
