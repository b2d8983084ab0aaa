"""`async-save`: the same bytes, later; nobody sees a file that is not whole."""

import glob
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slipstream.run.fixes import saving
from slipstream.run.saves import worth
from slipstream.run.saves import writer as writer_module
from slipstream.run.saves.snapshot import Buffers, NotPlain, OnDevice, snapshot
from tests.run.loop_kit import run_script, same_losses, situation

DELAY_S = 0.3
SAVE = torch.save

LOOP = """
import torch, time
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
expected = []
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, "FOLDER/last.pt")
    torch.save(state, f"FOLDER/{step}.pt")
    expected.append({name: value.clone() for name, value in model.state_dict().items()})
"""


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "_LARGE_BYTES", 0)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What torch.save writes takes a while; the threads in which it did."""
    threads: list[str] = []

    def save(*args: Any, **kwargs: Any) -> None:
        threads.append(threading.current_thread().name)
        time.sleep(DELAY_S)
        SAVE(*args, **kwargs)

    monkeypatch.setattr(torch, "save", save)
    return threads


@pytest.fixture
def applied(slow_disk: list[str]) -> Iterator[None]:
    undo = saving.apply(situation())
    yield
    undo()


def took(function: Any, *args: Any) -> float:
    began = time.perf_counter()
    function(*args)
    return time.perf_counter() - began


def test_a_loop_saves_what_it_had_at_the_time(tmp_path: Path) -> None:
    source = LOOP.replace("FOLDER", str(tmp_path))
    names, _ = same_losses(source, tmp_path, "async-save")
    for step, expected in enumerate(names["expected"]):
        saved = torch.load(tmp_path / f"{step}.pt")
        assert saved["step"] == step
        assert all(torch.equal(saved["model"][name], expected[name]) for name in expected)
    fixed = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    run_script(source, tmp_path)
    assert fixed == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def checkpoints() -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.randn(3, 5)).sum().backward()
    optimizer.step()
    base = torch.arange(20.0)
    shared = [1, "name"]
    return {
        "state": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": [base, base[3:9], base.view(4, 5).t(), base],
        "parameter": model[0].weight,
        "parameters": list(model.parameters()),
        "mixed": {"args": Namespace(lr=0.1, name="x"), 3: (shared, shared), "none": None},
        "arrays": [np.eye(3), np.asfortranarray(np.arange(6).reshape(2, 3)), np.float32(3)],
        "strided": np.asfortranarray(np.arange(12).reshape(3, 4))[:, ::2],
        "empty": [torch.empty(0), {}, [], ()],
        "kinds": [torch.ones(2, dtype=kind) for kind in (torch.bfloat16, torch.int8, torch.bool)],
    }


@pytest.mark.parametrize("name", list(checkpoints()))
@pytest.mark.usefixtures("applied")
def test_files_have_the_bytes_of_torch(tmp_path: Path, name: str, slow_disk: list[str]) -> None:
    what = checkpoints()[name]
    for folder in ("own", "fixed"):
        (tmp_path / folder).mkdir()
    SAVE(what, tmp_path / "own/model.v1.pt")
    torch.save(what, tmp_path / "fixed/model.v1.pt")
    fixed = (tmp_path / "fixed/model.v1.pt").read_bytes()
    assert fixed == (tmp_path / "own/model.v1.pt").read_bytes()
    assert slow_disk == ["slipstream-save"]


@pytest.mark.usefixtures("applied")
def test_the_loop_does_not_wait_and_later_changes_are_not_saved(tmp_path: Path) -> None:
    state = {"weight": torch.zeros(3), "list": [1]}
    assert took(torch.save, state, str(tmp_path / "a.pt")) < DELAY_S / 2
    state["weight"] += 1
    state["list"].append(2)
    loaded = torch.load(tmp_path / "a.pt")
    assert loaded["list"] == [1] and not loaded["weight"].any()


@pytest.mark.usefixtures("applied")
def test_what_a_killed_process_with_our_number_left_is_no_obstacle(tmp_path: Path) -> None:
    left = tmp_path / f".a.pt.slipstream-{os.getpid()}"
    left.mkdir()
    (left / "a.pt").write_bytes(b"half of it")
    assert took(torch.save, {"weight": torch.ones(3)}, str(tmp_path / "a.pt")) < DELAY_S / 2
    assert torch.load(tmp_path / "a.pt")["weight"].all()
    assert not left.exists()


def _link(path: Path) -> Any:
    path.with_name("link").symlink_to(path)
    return path.with_name("link").read_bytes()


SEES = {
    "load": lambda path: torch.load(path, weights_only=True),
    "exists": lambda path: Path(path).exists() or pytest.fail("not there"),
    "isfile": lambda path: os.path.isfile(path) or pytest.fail("not there"),  # noqa: PTH113
    "open": lambda path: path.read_bytes(),
    "copy": lambda path: shutil.copy(path, path.with_name("b")),
    "replace": lambda path: path.replace(path.with_name("b")),
    "remove": lambda path: path.unlink(),
    "rename folder": lambda path: path.parent.rename(path.parent.with_name("other")),
    "list": lambda path: list(path.parent.iterdir()).index(path),
    "glob": lambda path: next(path.parent.glob("*.pt")),
    "link": _link,
    "marker": lambda path: path.with_name("latest").write_text(path.name),
    "process": lambda path: subprocess.run(["test", "-s", str(path)], check=True),
    "fork": lambda path: os.waitpid(os.fork() or os._exit(not path.exists()), 0),  # type: ignore[func-returns-value]
    "save": lambda path: torch.save({}, path),
    "chown": lambda path: os.chown(path, -1, os.getgid()),
    "attributes": lambda path: len(os.listxattr(path)),
    "mask": lambda path: os.umask(os.umask(0o077)),
}


@pytest.mark.parametrize("name", list(SEES))
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.usefixtures("applied")
def test_what_could_see_the_file_waits_for_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run" / "a.pt"
    path.parent.mkdir()
    torch.save({"weight": torch.zeros(3)}, path)
    assert took(SEES[name], path) > DELAY_S / 2


BY_NUMBER: dict[str, Any] = {
    "list": lambda folder: os.listdir(folder).index("a.pt"),  # noqa: PTH208
    "open": lambda folder: os.close(os.open("a.pt", os.O_RDONLY, dir_fd=folder)),
}


@pytest.mark.parametrize("name", list(BY_NUMBER))
@pytest.mark.usefixtures("applied")
def test_a_folder_may_be_given_by_a_number(tmp_path: Path, name: str) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        torch.save({"weight": torch.zeros(3)}, tmp_path / "a.pt")
        BY_NUMBER[name](folder)
    finally:
        os.close(folder)


def test_a_file_has_the_mask_of_its_save(tmp_path: Path, slow_disk: list[str]) -> None:
    undo = saving.apply(situation())
    before = os.umask(0o077)
    torch.save({"weight": torch.zeros(3)}, tmp_path / "a.pt")
    os.umask(before)
    undo()
    assert slow_disk == ["slipstream-save"]
    assert (tmp_path / "a.pt").stat().st_mode & 0o777 == 0o600


def _size_of(path: str) -> int:
    return len(torch.load(path)["weight"])


def test_other_processes_find_the_file(tmp_path: Path, slow_disk: list[str]) -> None:
    """They may be told of it in ways that nobody watches."""
    undo = saving.apply(situation())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(len, ("",)) == 0
        torch.save({"weight": torch.zeros(3)}, tmp_path / "a.pt")
        assert pool.apply_async(_size_of, (str(tmp_path / "a.pt"),)).get(60) == 3
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as program:
        torch.save({"weight": torch.zeros(3)}, tmp_path / "b.pt")
        assert program.stdin is not None
    assert slow_disk == ["MainThread"] * 2
    loader: Any = torch.utils.data.DataLoader(torch.arange(8), num_workers=1)  # type: ignore[arg-type]
    for number, _ in enumerate(loader):
        torch.save({"weight": torch.zeros(3)}, tmp_path / f"{number}.pt")
        break
    undo()
    assert slow_disk[2:] == ["slipstream-save"]


@pytest.mark.parametrize("what", ["disk", "limit"])
def test_what_may_not_fit_is_written_at_once(
    tmp_path: Path, slow_disk: list[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An error belongs to the save that it happens in."""
    if what == "disk":
        own = os.statvfs(tmp_path)
        full = os.statvfs_result((own.f_bsize, own.f_frsize, own.f_blocks, 9, 9, *own[5:]))
        monkeypatch.setattr(os, "statvfs", lambda path: full)
    else:
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 20, -1))
    undo = saving.apply(situation())
    torch.save({"weight": torch.zeros(3)}, tmp_path / "a.pt")
    undo()
    assert slow_disk == ["MainThread"]


def test_functions_that_python_3_13_keeps_wait_as_well(
    tmp_path: Path, slow_disk: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its `Path.glob` has them, where this is another version."""
    kept = {"lstat": staticmethod(os.lstat), "scandir": staticmethod(os.scandir)}
    globber: Any = type("Globber", (), kept)
    monkeypatch.setattr(glob, "_StringGlobber", globber, raising=False)
    undo = saving.apply(situation())
    try:
        torch.save({"weight": torch.zeros(3)}, tmp_path / "a.pt")
        assert took(lambda: list(globber.scandir(tmp_path))) > DELAY_S / 2
    finally:
        undo()
    assert vars(globber)["scandir"].__func__ is os.scandir


def _add(path: Path) -> None:
    with path.open("a") as log:
        log.write("x")


OTHERS: dict[str, tuple[Any, bool]] = {
    "done": (lambda folder: (folder / "done").write_text("x"), True),
    "touch": (lambda folder: (folder / "done").touch(), True),
    "latest": (lambda folder: (folder / "log").write_text("run/a.pt"), True),
    "link": (lambda folder: (folder / "latest").symlink_to(folder / "other"), True),
    "folder": (lambda folder: (folder / "new").mkdir(), True),
    "first line": (lambda folder: _add(folder / "new log"), True),
    "line": (lambda folder: _add(folder / "log"), False),
    "read": (lambda folder: (folder / "log").read_text(), False),
}


@pytest.mark.parametrize("name", list(OTHERS))
@pytest.mark.usefixtures("applied")
def test_what_may_announce_the_file_elsewhere_waits(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "log").write_text("x")
    torch.save({"weight": torch.zeros(3)}, tmp_path / "run" / "a.pt")
    call, waits = OTHERS[name]
    assert (took(call, tmp_path) > DELAY_S / 2) == waits


@pytest.mark.usefixtures("applied")
def test_files_of_packages_do_not_wait(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    torch.save({"weight": torch.zeros(3)}, tmp_path / "run" / "a.pt")
    package = compile("open(name, 'w').close()", "/lib/site-packages/writer.py", "exec")
    assert took(exec, package, {"name": str(tmp_path / "events")}) < DELAY_S / 2


@pytest.mark.usefixtures("applied")
def test_what_is_not_plain_is_written_as_ever(tmp_path: Path, slow_disk: list[str]) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    ring: list[Any] = []
    ring.append(ring)
    torch.save(ring, tmp_path / "ring.pt")
    with (tmp_path / "file.pt").open("wb") as file:
        torch.save({}, file)
    assert set(slow_disk) == {"MainThread"}


@pytest.mark.usefixtures("applied")
def test_what_is_refused_lets_go_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[int] = []
    monkeypatch.setattr(Buffers, "clear", lambda buffers: cleared.append(1))
    monkeypatch.setenv("WORLD_SIZE", "2")
    torch.save({"a": torch.zeros(9)}, tmp_path / "a.pt")
    assert cleared and (tmp_path / "a.pt").exists()


@pytest.mark.usefixtures("applied")
def test_other_ranks_find_the_file(
    tmp_path: Path, slow_disk: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"a": 1}, tmp_path / "a.pt")
    monkeypatch.setenv("WORLD_SIZE", "2")
    torch.save({"a": 1}, tmp_path / "b.pt")
    assert sorted(slow_disk) == ["MainThread", "slipstream-save"]


@pytest.mark.usefixtures("applied")
def test_links_and_modes_stay(tmp_path: Path, slow_disk: list[str]) -> None:
    target = tmp_path / "target.pt"
    target.write_text("old")
    (tmp_path / "link.pt").symlink_to(target)
    torch.save({"a": 1}, tmp_path / "link.pt")
    assert slow_disk == ["MainThread"]
    assert (tmp_path / "link.pt").is_symlink() and torch.load(target) == {"a": 1}
    target.chmod(0o640)
    torch.save({"a": 2}, target)
    assert torch.load(target) == {"a": 2}
    assert target.stat().st_mode & 0o777 == 0o640
    assert slow_disk[-1] == "slipstream-save"


@pytest.mark.usefixtures("applied")
def test_a_folder_that_is_not_there_is_torchs_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="does not exist"):
        torch.save({}, tmp_path / "no" / "a.pt")


def test_a_full_disk_is_told_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    undo = saving.apply(situation())
    torch.save({"a": torch.zeros(2)}, tmp_path / "a.pt")
    with pytest.raises(RuntimeError, match=r"a\.pt: .*No space left"):
        torch.save({"a": torch.zeros(2)}, tmp_path / "b.pt")
    torch.save({"a": torch.zeros(2)}, tmp_path / "c.pt")
    with pytest.raises(RuntimeError, match=r"c\.pt: .*No space left"):
        undo()
    assert list(tmp_path.iterdir()) == []


SLOWLY = """
import os, signal, time, torch
own = torch.save
def slow(*args):
    time.sleep(0.5)
    own(*args)
torch.save = slow
from slipstream.run.fixes import saving
from slipstream.run.fix import Situation
from slipstream.run.saves import worth
worth._LARGE_BYTES = 0
saving.apply(Situation({}, None))
torch.save({"a": torch.ones(2)}, "a.pt")
"""


def test_the_end_of_a_process_waits(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SLOWLY], check=True, cwd=tmp_path)
    assert torch.load(tmp_path / "a.pt")["a"].sum() == 2


CHAINED = """
before = signal.getsignal(signal.SIGTERM)
def end(number, frame):
    if callable(before):
        before(number, frame)
    print("in order")
    raise SystemExit(3)
assert signal.signal(signal.SIGTERM, end) is signal.SIG_DFL
signal.raise_signal(signal.SIGTERM)
"""


def test_a_script_does_not_see_our_handlers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLOWLY + CHAINED],
        check=False, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("in order\n", 3), done.stderr


ENDS = {
    "raise_signal": "signal.raise_signal(signal.SIGTERM)",
    "killpg": "os.setpgrp(); os.killpg(0, signal.SIGTERM)",
    "from outside": "os.write(1, b'.'); time.sleep(60)",
}


@pytest.mark.parametrize("how", ENDS.values(), ids=ENDS)
def test_a_signal_that_ends_the_process_waits(tmp_path: Path, how: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY + how], stdout=subprocess.PIPE, cwd=tmp_path
    )
    if "sleep" in how:
        assert process.stdout is not None and process.stdout.read(1) == b"."
        process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert torch.load(tmp_path / "a.pt")["a"].sum() == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGXCPU", "SIGQUIT"])
def test_so_do_signals_that_nobody_expects(tmp_path: Path, name: str) -> None:
    how = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nos.write(1, b'.')\n"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{SLOWLY}{how}time.sleep(60)"], stdout=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None and process.stdout.read(1) == b"."
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=60)
    assert process.returncode == -getattr(signal, name)
    assert torch.load(tmp_path / "a.pt")["a"].sum() == 2


def test_a_handler_that_python_does_not_know_of_stays(tmp_path: Path) -> None:
    code = "import faulthandler; faulthandler.register(10)\n" + SLOWLY
    code += "os.kill(os.getpid(), 10); torch.load('a.pt'); os.kill(os.getpid(), 10)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr.count("most recent call first") == 2


@pytest.mark.usefixtures("applied")
def test_handlers_of_the_script_stay(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    assert torch.load(tmp_path / "a.pt")["a"].sum() == 2
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)) == before


@pytest.mark.usefixtures("applied")
def test_where_no_thread_can_be_started_files_are_written_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, pytest.warns(UserWarning, match="goes on as written"):
        patched.setattr(threading.Thread, "start", start)
        torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    torch.save({"a": torch.ones(3)}, tmp_path / "b.pt")
    assert [torch.load(tmp_path / name)["a"].sum() for name in ("a.pt", "b.pt")] == [2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt"]


def test_little_memory_writes_as_ever(
    tmp_path: Path, slow_disk: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_ROOM", 10**15)
    undo = saving.apply(situation())
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    undo()
    assert slow_disk == ["MainThread"]


def test_files_that_take_a_moment_are_written_as_the_script_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "_LARGE_BYTES", 16 * 2**20)
    delays = {3: 0.0, 300: DELAY_S}
    threads = []

    def save(what: Any, *args: Any) -> None:
        threads.append((len(what["a"]), threading.current_thread().name))
        time.sleep(delays[len(what["a"])])
        SAVE(what, *args)

    monkeypatch.setattr(torch, "save", save)
    known = situation()
    undo = saving.apply(known)
    torch.save({"a": torch.ones(3)}, tmp_path / "a.pt")
    torch.save({"a": torch.ones(3)}, tmp_path / "a.pt")
    assert known.did_nothing("async-save")
    for _ in range(3):
        torch.save({"a": torch.ones(300)}, tmp_path / "b.pt")
    assert not known.did_nothing("async-save")
    undo()
    aside = "slipstream-save"
    assert threads == [(3, "MainThread")] * 2 + [(300, "MainThread"), (300, aside), (300, aside)]


def test_a_file_that_turns_out_to_be_short_is_written_as_the_script_says_again() -> None:
    known = worth.Worth()
    assert known.is_long(100)
    known.note(100, 0.5)
    assert known.is_long(100) and known.is_long(120)
    known.note(100, 0.001)
    known.note(100, 0.5)
    assert not known.is_long(120) and known.is_long(1000)


def test_buffers_are_used_again() -> None:
    buffers = Buffers()
    tensor = torch.arange(4.0)
    first = snapshot([tensor, tensor[1:]], buffers)
    assert first[0].untyped_storage().data_ptr() == first[1].untyped_storage().data_ptr()
    buffers.give_back()
    second = snapshot({"x": torch.ones(4)}, buffers)
    assert second["x"].data_ptr() == first[0].data_ptr()
    with pytest.raises(NotPlain):
        snapshot({1, 2}, buffers)


def test_what_lies_on_a_device_is_saved_as_ever(tmp_path: Path) -> None:
    """But read in another way, which lets the loop go on."""
    storage = OnDevice(16, device=torch.device("cpu"))
    tensor = torch.empty(0).set_(storage).copy_(torch.arange(4.0))
    assert type(torch.nn.Parameter(tensor).untyped_storage()) is OnDevice
    with torch.device("meta"):  # as the script may say
        read = storage.cpu()
    assert read.tolist() == storage.tolist() and read.data_ptr() != storage.data_ptr()
    for folder, saved in (("ours", tensor), ("torchs", torch.arange(4.0))):
        (tmp_path / folder).mkdir()
        torch.save({"a": saved, "b": saved[1:]}, tmp_path / folder / "a.pt")
    ours, torchs = ((tmp_path / folder / "a.pt").read_bytes() for folder in ("ours", "torchs"))
    assert ours == torchs


def test_it_applies_where_the_loop_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert saving.applies(situation("torch.save"))[0]
    assert not saving.applies(situation())[0]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not saving.applies(situation("torch.save"))[0]


def test_a_file_that_is_open_is_written_and_not_replaced(tmp_path: Path) -> None:
    """Who has it open would go on with the old one."""
    undo = saving.apply(situation())
    with (tmp_path / "model.pt").open("w+b") as file:
        torch.save(torch.ones(1000), tmp_path / "model.pt")
        found = len(file.read())
    undo()
    assert found == (tmp_path / "model.pt").stat().st_size > 4000
