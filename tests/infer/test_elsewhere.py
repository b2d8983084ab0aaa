"""Models in other runtimes: what is exported, and what happens when a runtime misbehaves."""

import dataclasses
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from slipstream.infer.elsewhere import trial
from slipstream.infer.elsewhere.asking import CannotExport
from slipstream.infer.elsewhere.exported import Exported, exported
from slipstream.infer.elsewhere.needs import why_not
from slipstream.infer.elsewhere.process import RuntimeFailed
from slipstream.infer.elsewhere.program import Flat, program_of
from slipstream.infer.elsewhere.quantize import types_for
from slipstream.infer.elsewhere.runtimes import Runtime
from slipstream.infer.elsewhere.trial import in_child, tried
from slipstream.infer.inputs import inputs_of
from slipstream.infer.keeping import TookTooLong, at_most
from slipstream.infer.shell import emptied
from slipstream.infer.subject import Subject
from slipstream.processor import cpu_flags
from tests.infer.models import Boxes, Branching

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

RUNTIME = Runtime("onnxruntime", 1)


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    parts: list[torch.Tensor]
    note: str = "as it was"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    logits: torch.Tensor
    mask: torch.Tensor | None = None


def subject_of(model: nn.Module, example: Any) -> Subject:
    return Subject(model.eval(), inputs_of(example))


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(1),
        (torch.tensor(1), [torch.tensor(2), None], {"a": torch.tensor(3)}),
        OrderedDict(a=torch.tensor(1), b="text"),
        Boxes(torch.tensor(1), torch.tensor(2)),
        Result(torch.tensor(1), [torch.tensor(2), torch.tensor(3)], "another"),
        (Frozen(torch.tensor(1)), {"nested": Result(torch.tensor(2), [])}),
    ],
)
def test_a_shell_is_filled_as_it_was(value: Any) -> None:
    tensors, shell = emptied(value)
    found = shell.filled([tensor + 10 for tensor in tensors])
    expected = [int(tensor) + 10 for tensor in tensors]
    assert [int(tensor) for tensor in emptied(found)[0]] == expected
    assert emptied(found)[1].is_like(shell)
    assert type(found) is type(value)
    assert [int(tensor) for tensor in emptied(value)[0]] == [each - 10 for each in expected]
    assert repr(shell.filled(tensors)) == repr(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((torch.ones(1), True), (torch.ones(1), 1)),
        ((torch.ones(1), 1), (torch.ones(1), 1.0)),
        ((torch.ones(1), None), (torch.ones(1), torch.ones(1))),
        ((torch.ones(1),), [torch.ones(1)]),
        ({"a": torch.ones(1)}, {"b": torch.ones(1)}),
        (Result(torch.ones(1), []), Result(torch.ones(1), [], "another")),
        (Frozen(torch.ones(1)), Frozen(torch.ones(1), torch.ones(1))),
        ((torch.ones(1), np.ones(2)), (torch.ones(1), np.ones(2))),
    ],
)
def test_shells_that_differ_are_told_apart(one: Any, other: Any) -> None:
    assert not emptied(one)[1].is_like(emptied(other)[1])


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2


class Hooked(nn.Module):
    """Features that are taken out by a hook, as people do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.features: list[torch.Tensor] = []
        self.inner.register_forward_hook(lambda part, args, result: self.features.append(result))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


class GivesANumber(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        return x * 2, float(x.shape[0])


class TakesNoTensor(nn.Module):
    def forward(self, size: int) -> torch.Tensor:
        return torch.ones(size)


class TakesAnArray(nn.Module):
    def forward(self, x: torch.Tensor, weights: Any) -> torch.Tensor:
        return x * float(weights[0])


@pytest.mark.parametrize(
    ("model", "example", "words"),
    [
        (Counting(), torch.ones(2, 2), "changes its buffers"),
        (InPlace(), torch.ones(2, 2), "changes its inputs"),
        (Hooked(), torch.ones(2, 2), "calls hooks"),
        (GivesANumber(), torch.ones(2, 2), "gives float values"),
        (TakesAnArray(), (torch.ones(2, 2), np.ones(1)), "takes ndarray values"),
        (nn.Identity(), torch.ones(2, 2, dtype=torch.bfloat16), "bfloat16"),
        (TakesNoTensor(), (3,), "takes no tensor"),
        (Branching(), torch.randn(3, 4), "depends on the values"),
    ],
)
def test_what_no_graph_does_is_said_in_one_line(
    model: nn.Module, example: Any, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    subject = subject_of(model, example)
    for _ in range(2):
        with pytest.raises(CannotExport, match=words) as raised:
            exported(subject)
        assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


class FixedBatch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x.new_ones(2, 1)], 1) * 2


class OwnWeights(nn.Module):
    """Every place in a batch has its own. A graph that was made of two takes both for any size."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight[: len(x)]


@pytest.fixture(scope="module")
def linear() -> Exported:
    """Of a subject that lives on in the fixture's frame."""
    subject = subject_of(nn.Linear(4, 4), torch.randn(3, 4))
    made = exported(subject)
    object.__setattr__(made, "subject", subject)
    return made


def test_an_export_is_made_once_and_goes_with_its_subject() -> None:
    subject = subject_of(nn.Linear(4, 2), torch.randn(1, 4))
    made = exported(subject)
    assert made.file.exists()
    assert exported(subject) is made
    assert [case.batch for case in made.cases] == [1, 2]
    folder = made.file.parent
    del subject
    gc.collect()
    assert not folder.exists()


class WithFlags(nn.Module):
    """Buffers that are no floats, and a weight that torch computes in a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a newer one
            self.inner = nn.utils.weight_norm(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.mask


def test_hooks_of_torch_itself_are_a_part_of_the_graph() -> None:
    model = WithFlags().eval()
    with torch.no_grad():
        model(torch.randn(2, 4))  # or its weight belongs to a graph of autograd
    subject = subject_of(model, torch.randn(2, 4))
    made = exported(subject)
    tried(made, made.file, RUNTIME, 0.01)


def test_a_graph_of_one_batch_size_says_so() -> None:
    subject = subject_of(FixedBatch(), torch.randn(2, 4))
    made = exported(subject)
    assert [case.batch for case in made.cases] == [2]
    assert tried(made, made.file, RUNTIME, 0.01).has_fixed_shapes


def test_a_graph_that_errs_for_other_batch_sizes_is_not_asked_for_them() -> None:
    subject = subject_of(OwnWeights(), torch.randn(2, 4))
    made = exported(subject)
    assert [case.batch for case in made.cases] == [2]
    assert tried(made, made.file, RUNTIME, 0.01).has_fixed_shapes


def test_other_batch_sizes_are_answered_only_if_those_that_were_tried_are_right(
    linear: Exported,
) -> None:
    assert [case.batch for case in linear.cases] == [3, 1, 4]
    signature = tried(linear, linear.file, RUNTIME, 0.01)
    assert (signature.smallest, signature.largest) == (1, linear.largest)
    wrong = [
        dataclasses.replace(case, gives=[-each for each in case.gives]) for case in linear.cases
    ]
    for bad, expected in ((1, (3, linear.largest)), (2, (1, 3))):
        cases = [wrong[n] if n == bad else linear.cases[n] for n in range(3)]
        signature = tried(
            dataclasses.replace(linear, cases=tuple(cases)), linear.file, RUNTIME, 0.01
        )
        assert (signature.smallest, signature.largest) == expected


def broken(how: str, tmp_path: Path, limit_s: float = 30) -> dict[int, list[Any]]:
    arrays = [np.ones((2, 3), np.float32)]
    return in_child(
        tmp_path / how, RUNTIME, [arrays], limit_s=limit_s, module="tests.infer.broken_child"
    )


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("abort", "ONNX Runtime crashed: Aborted"),
        ("segfault", "ONNX Runtime crashed: Segmentation fault"),
        ("exit", "ONNX Runtime ended with exit code 7: license expired"),
        ("nothing", "ONNX Runtime left no results that can be read"),
        ("garbage", "ONNX Runtime left no results that can be read"),
    ],
)
def test_a_process_that_dies_is_an_error_with_its_reason(
    how: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeFailed, match=words):
        broken(how, tmp_path)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("nan", r"gives 12 of 12 values that are no finite numbers"),
        ("wrong-shape", r"gives \(1, 4\) float32, the model gives \(3, 4\) float32"),
        ("fewer", "gives 0 results, the model gives 1"),
    ],
)
def test_results_that_cannot_be_right_are_an_error(
    how: str, words: str, linear: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = trial.in_child

    def child(*given: Any, **options: Any) -> Any:
        return real(*given, **options, module="tests.infer.broken_child")

    monkeypatch.setattr(trial, "in_child", child)
    with pytest.raises(RuntimeFailed, match=words):
        tried(linear, tmp_path / how, RUNTIME, 0.01)


def test_a_file_that_is_no_graph_is_what_the_runtime_says(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"no graph at all")
    with pytest.raises(RuntimeFailed, match="ONNX Runtime raised InvalidProtobuf: "):
        in_child(file, RUNTIME, [[np.ones(2, np.float32)]])


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(RuntimeFailed, match="was not done after 3 s"):
        broken("hang", tmp_path, limit_s=3)
    assert time.monotonic() - start < 20
    assert not is_running(int((tmp_path / "hang.pid").read_text()))


def test_a_limit_of_the_search_ends_the_process_too(tmp_path: Path) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)  # that of the test itself
    with pytest.raises(TookTooLong), at_most(3):
        broken("hang", tmp_path)
    assert not is_running(int((tmp_path / "hang.pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent")
def test_a_process_ends_with_the_one_that_waits_for_it(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; import sys; from tests.infer.test_elsewhere import broken; "
        "broken('hang', Path(sys.argv[1]), 60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    pid_file = tmp_path / "hang.pid"
    try:
        wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not is_running(int(pid_file.read_text())))


def wait_until(is_so: Any) -> None:
    ends = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").exists() or " Z " not in Path(
        f"/proc/{pid}/stat"
    ).read_text(errors="replace")


LEAKS = """
import numpy as np
from slipstream.infer.elsewhere.child import repeated
kept = []
def leaks(arrays):
    kept.append(np.ones(4 << 20, np.uint8))
    return [arrays[0] * 2]
try:
    repeated(leaks, [np.ones(3)])
except MemoryError as error:
    print(error)
kept.clear()
print(repeated(lambda arrays: [arrays[0] * 2], [np.ones(3)]))
"""


def test_a_runtime_that_leaks_is_found_out() -> None:
    """In a process of its own: this one may have memory left that tests before gave back."""
    done = subprocess.run(
        [sys.executable, "-c", LEAKS], check=False, capture_output=True, text=True, timeout=60
    )
    assert "grows by 4 MB with every call" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[array([2., 2., 2.])]"


def test_nothing_of_the_process_changes(linear: Exported) -> None:
    before = (
        torch.get_num_threads(), torch.get_rng_state().tolist(), dict(os.environ), Path.cwd(),
        threading.active_count(), list(sys.path), signal.getsignal(signal.SIGALRM),
    )  # fmt: skip
    tried(linear, linear.file, RUNTIME, 0.01)
    assert before == (
        torch.get_num_threads(), torch.get_rng_state().tolist(), dict(os.environ), Path.cwd(),
        threading.active_count(), list(sys.path), signal.getsignal(signal.SIGALRM),
    )  # fmt: skip


def test_a_package_that_is_missing_is_named_with_its_line() -> None:
    subject = subject_of(nn.Linear(2, 2), torch.ones(1, 2))
    assert why_not(subject, "onnxruntime") is None
    why = why_not(subject, "onnxruntime", "no_such_package", "nor_this")
    assert why == (
        "no_such_package and nor_this are not installed: pip install no_such_package nor_this"
    )
    elsewhere = Subject(nn.Linear(2, 2, device="meta"), inputs_of(torch.ones(1, 2)))
    assert why_not(elsewhere, "onnxruntime") == "the model is not on the CPU"


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", {"avx2"}, ("QUInt8", True)),
        ("x86_64", {"avx512_vnni"}, ("QUInt8", False)),
        ("x86_64", {"avx_vnni"}, ("QUInt8", False)),
        ("aarch64", {"asimddp"}, ("QInt8", False)),
    ],
)
def test_int8_fits_the_processor(machine: str, flags: set[str], expected: Any) -> None:
    assert types_for(machine, frozenset(flags)) == expected


def test_flags_of_the_processor_are_read(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nflags\t\t: fpu avx512_vnni\nbugs\t\t: spectre_v1\n")
    assert cpu_flags(file) == {"fpu", "avx512_vnni"}
    assert cpu_flags(tmp_path / "none") == frozenset()


@pytest.mark.parametrize("takes", ["% 4", "== 3", "any"])
def test_ways_that_depend_on_the_batch_are_for_the_example_alone(takes: str) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if takes == "% 4" and x.shape[0] % 4 == 0:
                return x * 2
            if takes == "== 3" and x.shape[0] == 3:
                return x * 2
            return x + 1

    made = program_of(Flat(Model(), emptied(((torch.zeros(6, 4),), {}))[1]), [torch.zeros(6, 4)])
    assert made.is_batch == (takes == "any",)
