"""Patches of scripts: git and patch take them, and the losses stay the same, bit for bit."""

import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from slipstream.doctor.capture import Call, Capture, Loader
from slipstream.launch import Target
from slipstream.run.diff import make
from slipstream.run.diff.make import Patch, make_patch
from slipstream.run.diff.unified import base_of, unified
from slipstream.run.diff.workspace import Workspace
from slipstream.run.fix import Situation

_SCRIPT = """\
'''Trains.'''
import gc
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.01, momentum=0.9,  # as in the paper
)
data = TensorDataset(torch.randn(64, 8))


def evaluate():
    model.eval()
    total = 0.0
    for (x,) in DataLoader(data, 32):
        y = model(x)
        total += y.sum().item()
    model.train()
    return total


for epoch in range(2):
    for (x,) in DataLoader(data, 8, shuffle=True):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x.to("cpu")).square().mean()
        loss.backward()
        optimizer.step()
        gc.collect()
        print(loss.item().hex())
    print(evaluate().hex())
"""


def line_of(text: str, script: str = _SCRIPT) -> int:
    return next(n for n, line in enumerate(script.splitlines(), 1) if text in line)


def known(**capture: Any) -> Situation:
    return Situation({"findings": []}, Capture("train.py", {}, "", **capture))


def call(what: str, text: str, **facts: Any) -> Call:
    return Call(0, what, f"train.py:{line_of(text)}", 40, facts=facts)


def optimizer(**facts: Any) -> dict[str, Any]:
    return {
        "class": "SGD", "is_torchs": True, "foreach": None, "fused": None, "without_grad": 0,
        "made_at": f"train.py:{line_of('optim.SGD')}", **facts,
    }  # fmt: skip


def patch_of(folder: Path, names: list[str], situation: Situation, script: str = _SCRIPT) -> Patch:
    (folder / "train.py").write_text(script)
    return make_patch(names, Workspace(Target("train.py"), folder), situation)


def output_of(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def text_of(patch: Patch, folder: Path) -> str:
    return unified(patch.before, patch.after, base_of(list(patch.after), folder))


def git(folder: Path, *arguments: str, given: str = "") -> None:
    subprocess.run(["git", *arguments], cwd=folder, input=given.encode(), check=True)


def losses_are_kept(folder: Path, patch: Patch) -> str:
    """The patch; it applies, and the changed script prints the same."""
    text = text_of(patch, folder)
    before = output_of(folder)
    git(folder, "init", "-q")
    git(folder, "apply", "--whitespace=error", given=text)
    assert (folder / "train.py").read_text() == patch.after[(folder / "train.py").resolve()]
    assert output_of(folder) == before
    return text


def test_single_lines_of_the_loop_are_changed(tmp_path: Path) -> None:
    situation = known(
        calls=[call("zero_grad(set_to_none=False)", "zero_grad")], optimizers=[optimizer()]
    )
    patch = patch_of(tmp_path, ["zero-grad"], situation)
    text = losses_are_kept(tmp_path, patch)
    changed = [line for line in text.splitlines()[2:] if line[0] in "+-"]
    assert changed == [
        "-        optimizer.zero_grad(set_to_none=False)",
        "+        optimizer.zero_grad()",
    ]
    assert patch.left_out == {}


def test_collections_are_left_to_the_fix_which_looks_at_the_memory(tmp_path: Path) -> None:
    situation = known()
    where = f"train.py:{line_of('gc.collect')}"
    situation.report["findings"] = [{"rule": "forced-garbage-collection", "where": where}]
    text = losses_are_kept(tmp_path, patch_of(tmp_path, ["empty-cache"], situation))
    assert '+slipstream.speed_up("empty-cache")\n' in text
    assert "\n-" not in text.partition("@@")[2]


def test_what_no_line_can_do_is_one_call(tmp_path: Path) -> None:
    names = ["fast-loader", "kept-memory", "garbage-pauses"]
    patch = patch_of(tmp_path, names, known())
    text = losses_are_kept(tmp_path, patch)
    assert '+slipstream.speed_up("fast-loader", "garbage-pauses")\n' in text
    assert '+os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")' in text
    assert "\n-" not in text.partition("@@")[2]


def test_an_optimizer_is_made_another_way(tmp_path: Path) -> None:
    situation = known(optimizers=[optimizer()])
    patch = patch_of(tmp_path, ["fused-optimizer"], situation)
    text = text_of(patch, tmp_path)
    assert "lr=0.01, momentum=0.9,  # as in the paper\n+    foreach=True,\n )" in text
    situation.capture.clock = "device"
    patch = patch_of(tmp_path, ["fused-optimizer"], situation)
    assert "+    fused=True,\n" in text_of(patch, tmp_path)


def test_threads_and_switches(tmp_path: Path) -> None:
    replay = {
        "name": "threads", "threads": [1, 2], "now_ms": [2.0] * 9, "then_ms": [1.0] * 9,
    }  # fmt: skip
    situation = known(replays=[replay])
    patch = patch_of(tmp_path, ["threads", "tf32", "cudnn-benchmark"], situation)
    text = losses_are_kept(tmp_path, patch)
    assert "-torch.set_num_threads(1)\n+torch.set_num_threads(2)\n" in text
    assert '+torch.set_float32_matmul_precision("high")\n' in text
    assert "+torch.backends.cudnn.benchmark = True\n" in text
    assert "import torch" not in "".join(x for x in text.splitlines() if x.startswith("+"))
    own = text_of(patch_of(tmp_path, ["own-kernels"], situation), tmp_path)
    assert "+torch._C._set_mkldnn_enabled(False)\n" in own


def test_copies_go_on_and_loaders_pin(tmp_path: Path) -> None:
    line = line_of("shuffle=True")
    loader = Loader(
        id=0, made_at=f"train.py:{line}", used_at=None, dataset="", dataset_id=0, kind="map",
        length=8, batch_size=8, workers=0, prefetch=None, pin_memory=False, persistent=False,
        start_method=None, in_order=True, shuffled=True, drop_last=False, collate="",
    )  # fmt: skip
    situation = known(calls=[call("Tensor.to", '.to("cpu")', blocking=40)], loaders=[loader])
    patch = patch_of(tmp_path, ["non-blocking-copies"], situation)
    text = text_of(patch, tmp_path)
    assert '+        loss = model(x.to("cpu", non_blocking=True)).square().mean()\n' in text
    assert "+    for (x,) in DataLoader(data, 8, shuffle=True, pin_memory=True):\n" in text


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('model(x.to("cpu"))', 'model(x.to("cpu")).to("cuda")', "several places"),
        ("data = ", "pinned = torch.zeros(8).pin_memory()\ndata = ", "pins memory itself"),
        ('.to("cpu")', '.to("cpu", **more)', "built elsewhere"),
        (
            "    model.eval()",
            "    model.eval()\n    host.copy_(y, non_blocking=True)",
            "to wait for",
        ),
        ("    model.eval()", "    model.eval()\n    y.to(back, non_blocking=True)", "to wait for"),
        ("    model.eval()", "    model.eval()\n    host.copy_(y, True)", "to wait for"),
        ("    model.eval()", "    model.eval()\n    send(y, non_blocking=True)", "to wait for"),
        ("data = ", "page = torch.zeros(8, pin_memory=True)\ndata = ", "pins memory itself"),
        ("        gc.collect()", "        x.zero_()", "may change while it is copied"),
    ],
)
def test_copies_that_could_go_wrong_are_left_to_the_fix(
    tmp_path: Path, before: str, after: str, why: str
) -> None:
    script = _SCRIPT.replace(before, after)
    line = line_of("x.to(", script)
    situation = known(calls=[Call(0, "Tensor.to", f"train.py:{line}", facts={"blocking": 40})])
    patch = patch_of(tmp_path, ["non-blocking-copies"], situation, script)
    assert why in patch.forms["non-blocking-copies"]
    assert "non_blocking=True" not in text_of(patch, tmp_path)


@pytest.mark.parametrize("is_trained", [True, False])
def test_a_function_that_may_copy_back_is_left_alone(tmp_path: Path, is_trained: bool) -> None:
    learns = "x.sum().backward()" if is_trained else ""
    script = (
        "def move(loader, device):\n    for x in loader:\n        x = x.to(device)\n"
        f"        {learns}\n    return x\n"
    )
    situation = known(calls=[Call(0, "Tensor.to", "train.py:3", facts={"blocking": 40})])
    patch = patch_of(tmp_path, ["non-blocking-copies"], situation, script)
    assert ("non_blocking=True" in text_of(patch, tmp_path)) == is_trained


def test_files_that_cannot_be_read_are_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".#train.py").symlink_to("nobody@nowhere.1")
    (tmp_path / "folder.py").mkdir()
    situation = known(
        calls=[call("zero_grad(set_to_none=False)", "zero_grad")], optimizers=[optimizer()]
    )
    assert "+        optimizer.zero_grad()\n" in text_of(
        patch_of(tmp_path, ["zero-grad"], situation), tmp_path
    )


def test_a_change_that_fails_is_left_to_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setitem(make.REWRITERS, "zero-grad", fail)
    patch = patch_of(tmp_path, ["zero-grad"], known())
    assert "ZeroDivisionError: unforeseen" in patch.forms["zero-grad"]


def test_threads_of_workers_are_left_alone(tmp_path: Path) -> None:
    replay = {"name": "threads", "threads": [1, 2], "now_ms": [2.0] * 9, "then_ms": [1.0] * 9}
    script = "import torch\ndef start(number):\n    torch.set_num_threads(1)\n"
    patch = patch_of(tmp_path, ["threads"], known(replays=[replay]), script)
    assert patch.after == {}
    assert "inside of a function" in patch.left_out["threads"]


def test_parameters_without_gradients_keep_their_zeros(tmp_path: Path) -> None:
    """zero_grad() would change what momentum does to them: the call does it as the fix does."""
    script = _SCRIPT.replace("model(x.to", "(model if epoch else model[0])(x.to")
    situation = known(
        calls=[call("zero_grad(set_to_none=False)", "zero_grad")],
        optimizers=[optimizer(without_grad=2)],
    )
    patch = patch_of(tmp_path, ["zero-grad"], situation, script)
    text = losses_are_kept(tmp_path, patch)
    assert '+slipstream.speed_up("zero-grad")\n' in text
    assert "zero_grad()" not in text


def test_a_script_that_freezes_later_keeps_its_zeros(tmp_path: Path) -> None:
    """No trial comes so far: momentum goes on with zeros, and stops without them."""
    script = _SCRIPT.replace(
        "    print(evaluate()", "    model[0].requires_grad_(False)\n    print(evaluate()"
    )
    situation = known(
        calls=[call("zero_grad(set_to_none=False)", "zero_grad")], optimizers=[optimizer()]
    )
    text = losses_are_kept(tmp_path, patch_of(tmp_path, ["zero-grad"], situation, script))
    assert '+slipstream.speed_up("zero-grad")\n' in text


def test_what_is_not_in_the_users_files_is_left_out(tmp_path: Path) -> None:
    library = Path(sys.modules["torch"].__file__ or "")
    situation = known(optimizers=[optimizer(made_at=f"{library}:1")])
    patch = patch_of(tmp_path, ["fused-optimizer"], situation)
    assert patch.after == {}
    assert "not your file" in patch.left_out["fused-optimizer"]


def test_a_patch_applies_in_a_folder_below_the_root_too(tmp_path: Path) -> None:
    folder = tmp_path / "below"
    folder.mkdir()
    git(tmp_path, "init", "-q")
    patch = patch_of(folder, ["fast-loader"], known())
    text = text_of(patch, folder)
    git(folder, "apply", given=text)
    changed = (folder / "train.py").read_text()
    assert "speed_up" in changed
    if shutil.which("patch"):
        (folder / "train.py").write_text(_SCRIPT)
        subprocess.run(["patch", "-p1", "-s"], cwd=folder, input=text.encode(), check=True)
        assert (folder / "train.py").read_text() == changed


def test_a_file_with_other_ends_of_lines_and_no_last_one(tmp_path: Path) -> None:
    script = dedent(_SCRIPT).replace("\n", "\r\n").removesuffix("\r\n")
    (tmp_path / "train.py").write_bytes(script.encode())
    space = Workspace(Target("train.py"), tmp_path)
    patch = make_patch(["fast-loader"], space, known())
    git(tmp_path, "init", "-q")
    git(tmp_path, "apply", given=text_of(patch, tmp_path))
    changed = (tmp_path / "train.py").read_bytes().decode()
    assert changed == patch.after[(tmp_path / "train.py").resolve()]
    assert changed.count("\r\n") == changed.count("\n")


def test_a_module_of_a_package_is_found_without_loading_it(tmp_path: Path) -> None:
    package = tmp_path / "nets"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('loaded')")
    (package / "__main__.py").write_text(_SCRIPT)
    (package / "train.py").write_text(_SCRIPT)
    for name, file in (("nets", "__main__.py"), ("nets.train", "train.py")):
        space = Workspace(Target(name, is_module=True), tmp_path)
        assert space.main().path == package / file


@pytest.mark.parametrize("name", ["kept-memory", "faster-please"])
def test_speed_up_refuses_what_it_cannot_do(name: str) -> None:
    import slipstream

    with pytest.raises(slipstream.SlipstreamError, match="speed_up cannot do"):
        slipstream.speed_up(name)
