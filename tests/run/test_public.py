"""Scripts in the style of public ones do the same with exact fixes: what they print and what they
write is equal, bit for bit.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.run.apply import FIXES
from tests.run.public_runs import (
    SCRIPTS,
    Run,
    Script,
    Server,
    is_there,
    make_data,
    run_fixed,
    run_plain,
)

pytestmark = pytest.mark.timeout(300)
EXACT = tuple(fix.name for fix in FIXES if fix.kind == "E")
# One is a variable that a process starts with, the other is for batches that go to a GPU.
APPLIED = tuple(name for name in EXACT if name != "kept-memory")
# torchvision's own CIFAR10 takes no files but those that it has downloaded.
_STANDING_IN = () if importlib.util.find_spec("torchvision") is None else ("cifar", "cifar-workers")
SMALL = [
    script for script in SCRIPTS.values() if not script.needs and script.name not in _STANDING_IN
]
# Others go the same ways in less time.
_LONG = ("recipe-amp", "siamese-workers", "spawned")
QUICK = [
    pytest.param(script, marks=pytest.mark.long) if script.name in _LONG else script
    for script in SMALL
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture(scope="module")
def plain(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """What scripts do as they are; each is run when it is first asked for."""

    class Runs(dict[str, Run]):
        def __missing__(self, name: str) -> Run:
            folder = tmp_path_factory.mktemp(name)
            make_data(folder)
            self[name] = server.run(SCRIPTS[name], folder)
            return self[name]

    yield Runs()


def assert_same(before: Run, after: Run) -> None:
    assert before.exit_code == 0, before.complained
    assert after.exit_code == 0, after.complained
    assert after.failures == {}
    assert before.printed and after.printed == before.printed
    assert after.files == before.files


@pytest.mark.parametrize("script", QUICK, ids=lambda script: script.name)
def test_all_exact_fixes_at_once(
    script: Script, server: Server, plain: dict[str, Run], tmp_path: Path
) -> None:
    make_data(tmp_path)
    before = plain[script.name]
    after = server.run(script, tmp_path, APPLIED)
    assert_same(before, after)
    assert set(after.complained.splitlines()) <= set(before.complained.splitlines())


@pytest.mark.long
@pytest.mark.parametrize("fix", APPLIED)
@pytest.mark.parametrize("script", SMALL, ids=lambda script: script.name)
def test_each_exact_fix_alone(
    script: Script, fix: str, server: Server, plain: dict[str, Run], tmp_path: Path
) -> None:
    make_data(tmp_path)
    assert_same(plain[script.name], server.run(script, tmp_path, (fix,)))


@pytest.mark.slow
def test_the_whole_command_on_pictures(plain: dict[str, Run], tmp_path: Path) -> None:
    make_data(tmp_path)
    after = run_fixed(SCRIPTS["imagenet"], tmp_path)
    assert_same(plain["imagenet"], after)
    assert after.became("native-pictures") == "applied"
    assert "24 batches and " in after.report["checked"]
    assert after.complained.count("UserWarning: You have chosen to seed training.") == 1


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint(server: Server, tmp_path: Path) -> None:
    script = SCRIPTS["logged"]
    folders = [tmp_path / name for name in ("plain", "fixed")]
    for folder in folders:
        folder.mkdir()
        make_data(folder)
        server.run(script, folder)
    longer = replace(script, arguments=("4",))
    before, after = server.run(longer, folders[0]), run_fixed(longer, folders[1])
    assert before.printed[0] == "resumed at epoch 2, step 60"
    assert_same(before, after)
    for name in ("runs/latest.pt", "runs/train.log", "runs/first/events.out.tfevents.0"):
        one, other = ((folder / name).read_bytes() for folder in folders)
        assert one == other or name.endswith(".log")
        assert one.count(b"resumed") == other.count(b"resumed")


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=lambda script: script.name)
def test_the_whole_command(script: Script, tmp_path: Path) -> None:
    if not is_there(script):
        pytest.skip(f"{script.needs} is not installed: it is tried where it is")
    runs = []
    for name in ("plain", "fixed"):
        folder = tmp_path / name
        folder.mkdir()
        make_data(folder)
        runs.append(run_plain(script, folder) if name == "plain" else run_fixed(script, folder))
    assert_same(*runs)
    assert not [entry for entry in runs[1].report["fixes"] if entry["state"] == "undone"]


@pytest.mark.long
@pytest.mark.timeout(900)  # each fix that rounds is tried up to four times, some with a compiler
@pytest.mark.parametrize("script", SMALL, ids=lambda script: script.name)
def test_the_whole_command_with_rounding(script: Script, tmp_path: Path) -> None:
    make_data(tmp_path)
    after = run_fixed(script, tmp_path, "--allow", "numeric")
    assert after.exit_code == 0, after.complained
    assert "failed and is off" not in after.complained
