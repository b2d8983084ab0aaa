"""What the recorder notes beyond the parts of a step: products, kept graphs, profilers, ranks."""

import cProfile
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch

from slipstream.doctor.capture import Call, Process
from slipstream.doctor.diagnose import diagnose
from slipstream.doctor.learning import forward_passes
from slipstream.doctor.record import loop, stopwatch
from slipstream.doctor.record.evaluated import Evaluated
from slipstream.doctor.record.libraries import time_libraries
from slipstream.doctor.record.models import ModelFacts
from slipstream.doctor.record.opens import OpenCount, count_opens
from slipstream.doctor.record.pressure import memory_stall, own_swap, swapped_in
from slipstream.doctor.record.products import Attention, Product, Products, watching_products
from slipstream.doctor.record.replay_anomaly import StackOfDepth
from slipstream.doctor.record.replay_model import training_pass
from slipstream.doctor.record.replay_products import is_odd, padded, replay_products
from slipstream.doctor.record.retained import RetainedGraphs
from slipstream.doctor.record.rungs import Rungs
from slipstream.doctor.record.session import Session
from slipstream.doctor.record.stages import StageLog
from slipstream.doctor.record.stopwatch import Stopwatch
from slipstream.patches import Patches


def test_shapes_that_a_model_gets_are_known_up_to_a_few() -> None:
    facts, model = ModelFacts(), torch.nn.Linear(4, 1)
    for rows in (8, 8, 5, 8):
        number = facts.note(model, (torch.zeros(rows, 4),), {})
    assert facts.found[number]["shapes"] == [[[8, 4]], [[5, 4]]]
    for rows in range(40):
        facts.note(model, (torch.zeros(rows, 4),), {})
    assert len(facts.found[number]["shapes"]) == 8


def test_the_batch_that_is_learned_from_is_kept() -> None:
    """Not those of one row, by which an agent chooses what to do."""
    facts, model = ModelFacts(), torch.nn.Linear(4, 1)
    for _ in range(5):
        for rows in (1, 1, 1, 128):
            facts.note(model, (torch.zeros(rows, 4),), {})
        facts.after_backward()
    facts.note(model, (torch.zeros(1, 4),), {})
    [((kept,), _)] = facts.given.values()
    assert kept.shape == (128, 4)


def test_batches_of_agents_are_not_changed_by_the_script_and_evaluation_keeps_its_own() -> None:
    facts, model = ModelFacts(), torch.nn.Linear(4, 1)
    for _ in range(4):
        batch = {"x": torch.zeros(8, 4, requires_grad=True) * 2}
        facts.note(model, (batch,), {})
        batch.clear()
    facts.after_backward()
    [((kept,), _)] = facts.given.values()
    assert kept["x"].shape == (8, 4)
    assert kept["x"].grad_fn is None
    evaluated = torch.nn.Linear(4, 1).eval()
    with torch.no_grad():
        for rows in (7, 7, 7, 3):
            other = facts.note(evaluated, (torch.zeros(rows, 4),), {})
    assert [given[0][0].shape[0] for key, given in facts.given.items() if key[0] == other] == [7]


def test_a_result_that_two_passes_give_is_there_as_long_as_it_is() -> None:
    evaluated, x = Evaluated(), torch.ones(2, requires_grad=True) * 2
    first, second, third = [0, False, True], [1, False, True], [2, False, True]
    evaluated.watch(first, x)
    evaluated.watch(second, {"same": x})
    evaluated.watch(third, x * 3)
    evaluated.watch([3, False, True], torch.ones(2))
    evaluated.before_backward()
    assert (first[3:], second[3:], third[3:]) == ([False], [False], [True])


@pytest.mark.parametrize("is_learned_from", [False, True])
def test_validation_without_a_loader_is_told_from_what_is_learned_from(
    is_learned_from: bool,
) -> None:
    model, x = torch.nn.Linear(4, 1), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def epoch() -> None:
        labels = model.train()(x)
        loss = labels.sum() if not is_learned_from else (labels - kept.pop()).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = model.eval()(x)
        if is_learned_from:
            kept.append(found)

    kept = [model(x)]
    with diagnose() as watched:
        for _ in range(12):
            epoch()
    spans = watched.diagnosis.capture.spans
    learns = [learns for span, learns in forward_passes(spans) if not span.detail[1]]
    assert len(learns) == 12
    assert learns[:11] == [is_learned_from] * 11


def test_shapes_of_pictures_in_lists_and_names_count() -> None:
    facts, model = ModelFacts(), torch.nn.Linear(4, 1)
    for side in (8, 9, 8):
        pictures = [torch.zeros(3, side, side), torch.zeros(3, 8, 8)]
        number = facts.note(model, (pictures,), {"targets": {"boxes": torch.zeros(side, 4)}})
    first, second = [[3, 8, 8], [3, 8, 8]], [[3, 9, 9], [3, 8, 8]]
    assert facts.found[number]["shapes"] == [first, second]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_attention_by_hand_is_seen_and_torchs_own_is_not(mode: type) -> None:
    q, k, v = (torch.randn(2, 4, 32, 8) for _ in range(3))
    mask = torch.ones(32, 32).tril() == 0
    with mode(), watching_products() as seen:
        torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
        assert not seen.attentions
        torch.softmax(q @ k.transpose(-2, -1) / 8, -1) @ v
        scores = torch.einsum("bhld,bhsd->bhls", q, k).masked_fill(mask, -1e9)
        torch.einsum("bhls,bhsd->bhld", scores.softmax(-1), v)
    found = [(entry.shape, entry.is_masked) for entry in seen.attentions.values()]
    assert found == [((8, 32, 32, 8), False), ((8, 32, 32, 8), True)]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_attention_of_torchs_layers_is_torchs_own(dropout: float) -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(20)
    with watching_products() as seen:
        layer(torch.randn(3, 20, 16), src_mask=mask, is_causal=True).sum().backward()
        assert not seen.attentions
        layer.self_attn(*[torch.randn(3, 20, 16)] * 3, need_weights=True)
    assert len(seen.attentions) == 1


@pytest.mark.parametrize("heads_lie_apart", [False, True])
def test_attention_knows_whether_its_heads_are_gathered(heads_lie_apart: bool) -> None:
    q, k, v = torch.randn(3, 2, 32, 4, 8).transpose(2, 3)
    if not heads_lie_apart:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    with watching_products() as seen:
        torch.softmax(q @ k.transpose(-2, -1) / 8, -1) @ v
    assert [entry.is_gathered for entry in seen.attentions.values()] == [heads_lie_apart]


@pytest.mark.parametrize("is_gathered", [False, True])
def test_attention_is_replayed_as_it_lies(is_gathered: bool) -> None:
    attention = Attention((12, 32, 32, 8), 8, torch.float32, "cpu", "t.py:1", False, is_gathered,
                          with_grad=True, count=2)  # fmt: skip
    seen = Products()
    seen.attentions["one"] = attention
    with watching_products() as again:
        (entry,) = replay_products(seen, 0, Stopwatch(5.0))
    assert entry["count"] == 2 and len(entry["now_ms"]) == len(entry["then_ms"])
    assert {(a.shape, a.is_gathered) for a in again.attentions.values()} == {
        ((12, 32, 32, 8), is_gathered)
    }


def test_only_what_is_warm_has_to_fit_into_a_comparison() -> None:
    pauses = iter([0.5])

    def slow_at_first() -> None:
        time.sleep(next(pauses, 0.001))

    times = Stopwatch(5.0).compare(slow_at_first, lambda: None, seconds=0.2)
    assert times is not None
    assert max(times[0]) < 100
    assert Stopwatch(0.0).compare(slow_at_first, lambda: None) is None
    assert Stopwatch(5.0).compare(lambda: time.sleep(0.1), lambda: None, seconds=0.2) is None


def test_a_softmax_of_classes_is_no_attention() -> None:
    x, head, table = torch.randn(64, 16), torch.randn(16, 32), torch.randn(32, 8)
    with watching_products() as seen:
        torch.softmax(x @ head, -1) @ table
        torch.softmax((x @ head).view(2, 32, 32), 1) @ table
    assert not seen.attentions
    assert {entry.shape[2:] for entry in seen.products.values()} == {(16, 32), (32, 8)}


def test_watching_changes_no_number() -> None:
    model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    x = torch.randn(2, 8, 16)
    expected = model(x)
    with watching_products():
        got = model(x)
    assert torch.equal(got, expected)


@pytest.mark.parametrize(
    ("sizes", "dtype", "device", "expected"),
    [
        ((768, 50257), torch.bfloat16, "cuda", True),
        ((768, 50304), torch.bfloat16, "cuda", False),
        ((769, 512), torch.float16, "cuda", True),
        ((768, 50257), torch.bfloat16, "cpu", False),
        ((768, 50257), torch.float32, "cuda", False),  # without TF32 there are no tensor cores
        ((768, 3), torch.bfloat16, "cuda", False),  # too small to matter
    ],
)
def test_odd_sizes(sizes: tuple[int, int], dtype: torch.dtype, device: str, expected: bool) -> None:
    assert is_odd(Product((1, 64, *sizes), dtype, device, None, True)) is expected
    assert (padded(50257, 8), padded(100, 8), padded(512, 8)) == (50304, 104, 512)


def judged(step: object, steps: int = 12) -> dict[str, int]:
    graphs, call = RetainedGraphs(), Call(0, "backward", "train.py:1")
    weight = torch.randn(4, requires_grad=True)
    state = torch.zeros(4)
    for _ in range(steps):
        state = step(graphs, call, weight, state)  # type: ignore[operator]
    return call.facts


def test_a_graph_that_nothing_uses_again_is_told_from_one_that_is_used() -> None:
    def for_nothing(
        graphs: RetainedGraphs, call: Call, weight: torch.Tensor, state: torch.Tensor
    ) -> torch.Tensor:
        loss = (weight**2).sum()
        graphs.before_backward(loss, call, True)
        loss.backward(retain_graph=True)
        return state

    def carried(
        graphs: RetainedGraphs, call: Call, weight: torch.Tensor, state: torch.Tensor
    ) -> torch.Tensor:
        state = torch.tanh(state + weight)
        graphs.before_backward(state.sum(), call, True)
        return state

    def twice(
        graphs: RetainedGraphs, call: Call, weight: torch.Tensor, state: torch.Tensor
    ) -> torch.Tensor:
        shared = weight**2
        graphs.before_backward(shared.sum(), call, True)
        graphs.before_backward(shared.mean(), Call(1, "backward", "train.py:2"))
        return state

    assert judged(for_nothing)["retained_used"] == 0
    for needed in (carried, twice):
        facts = judged(needed)
        assert facts["retained_used"] == facts["retained_looked_at"] >= 2


def train(steps: int = 12) -> None:
    layers = [torch.nn.Linear(8, 8) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in torch.utils.data.DataLoader(torch.randn(4 * steps, 8), 4):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


def test_a_profiler_is_noted_with_its_line_and_left_as_it_was() -> None:
    with cProfile.Profile() as profile, diagnose() as watched:
        train()
    profile.disable()
    [entry] = [r for r in watched.diagnosis.capture.replays if r["name"] == "profiler"]
    assert entry["profiler"] == "cProfile"
    assert entry["steps"] == [12, 12]
    assert len(entry["now_ms"]) == len(entry["then_ms"]) >= 3
    with diagnose() as watched:
        train()
    assert not [r for r in watched.diagnosis.capture.replays if r["name"] == "profiler"]


def test_torchs_profiler_with_stacks_works_inside() -> None:
    with diagnose():
        train()  # what is imported under the profiler leaves names there that torch cannot read
    with diagnose() as watched, torch.profiler.profile(with_stack=True) as profiler:
        train()
    names = [r["profiler"] for r in watched.diagnosis.capture.replays if r["name"] == "profiler"]
    assert names == ["torch.profiler"]
    assert "nn.Module: Linear" in "".join(event.name for event in profiler.events())


def test_counters_are_there_or_none() -> None:
    for count in (swapped_in(), own_swap(), memory_stall()):
        assert count is None or count >= 0


SCRIPT = """
import os, time, torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x in torch.utils.data.DataLoader(torch.randn(160, 8), 4):
    optimizer.zero_grad()
    if rank == int(os.environ["SLOW_RANK"]):
        time.sleep(0.03)
    model(x).sum().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slow", "steps"),
    [(1, 20), (-1, 20), (1, 200)],
    ids=["slow", "healthy", "slow, and over before the window"],
)
def test_a_slow_rank_is_named_under_torchrun(slow: int, steps: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    import os

    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            "-m", "slipstream", "doctor", "--steps", str(steps), "--capture", "c.json",
            "train.py",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "SLOW_RANK": str(slow), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert {path.name for path in tmp_path.glob("c*.json")} == {"c.json", "c-rank1.json"}
    found = {finding["rule"]: finding for finding in report["findings"]}
    if slow < 0:
        assert "slow-rank" not in found
        return
    assert "Rank 1 comes" in found["slow-rank"]["title"]
    assert found["slow-rank"]["cost_ms"] == pytest.approx(30, rel=0.3)


def test_files_are_counted_however_they_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "values.npy"
    np.save(path, np.zeros(4))
    (tmp_path / "recording").mkdir()
    process, patches, plain = Process(0, 0, None), Patches(), open
    count = OpenCount(process, Rungs(tmp_path / "recording", make=True))
    count_opens(patches, set())
    time_libraries(StageLog(), patches, set())
    try:
        with open(path, "rb"), path.open("rb"), open(str(path)):  # noqa: PTH123
            np.load(path)
        path.read_bytes()
        os.close(os.open(path, os.O_RDONLY))
        with open(tmp_path / "written", "w"), path.open("r+b"):  # noqa: PTH123
            pass
        assert (process.opens, process.opened_again) == (6, 5)
        assert process.folders == {str(tmp_path): 6}
        count.is_on = False
        path.read_bytes()
        assert process.opens == 6
    finally:
        patches.undo()
    assert open is plain


class _Deep(torch.nn.Linear):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        self.depth = len(traceback.extract_stack())
        self.checked = torch.is_anomaly_enabled()
        return super().forward(given)


def test_anomaly_detection_is_replayed_on_a_stack_as_deep_as_the_scripts() -> None:
    depths = []
    for depth in (2, 12):
        model = _Deep(4, 1)
        stack = StackOfDepth(model, ((torch.zeros(2, 4),), {}), depth, None)
        for is_on in (True, False):
            stack.with_anomaly(is_on)()
            assert model.checked == is_on
        stack.close()
        depths.append(model.depth)
    assert depths[1] - depths[0] == 10
    direct = traceback.extract_stack()
    model(torch.zeros(2, 4))
    assert depths[0] - 2 == model.depth - len(direct)


def test_a_pass_that_fails_on_its_stack_says_so() -> None:
    stack = StackOfDepth(torch.nn.Linear(3, 1), ((torch.zeros(2, 4),), {}), 1, None)
    with pytest.raises(RuntimeError):
        stack.with_anomaly(False)()
    stack.close()


class _Casts(torch.autograd.Function):
    """Notes whether its passes run under autocast."""

    seen: ClassVar[list[bool]] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        _Casts.seen.append(torch.is_autocast_enabled("cuda"))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        _Casts.seen.append(torch.is_autocast_enabled("cuda"))
        return gradient


class _Noted(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast("torch.Tensor", _Casts.apply(super().forward(x)))


@pytest.mark.filterwarnings("ignore:User provided device_type")
@pytest.mark.parametrize("under", [True, False])
def test_autocast_is_for_the_forward_pass(under: bool) -> None:
    _Casts.seen.clear()
    work = training_pass(_Noted(3, 2), ((torch.ones(4, 3),), {}))
    torch.set_autocast_enabled("cuda", under)
    try:
        work()
        assert torch.is_autocast_enabled("cuda") == under
    finally:
        torch.set_autocast_enabled("cuda", False)
    assert _Casts.seen == [under, False]


def test_short_passes_on_a_device_are_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, clock = [], [0.0]
    monkeypatch.setattr(stopwatch, "cuda_is_in_use", lambda: True)
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("wait"))

    def work() -> None:
        calls.append("pass")
        clock[0] += 0.006

    times = Stopwatch(5.0).compare(work, work, seconds=0.2)
    assert times is not None
    assert calls[-6:] == ["wait", *4 * ["pass"], "wait"]
    assert times[0] + times[1] == pytest.approx(10 * [6.0])


def test_sparse_tensors_are_copied_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "cuda_is_in_use", lambda: True)
    session = Session("graphs", steps=20, seconds=100.0)
    session.start()
    copies = [matrix.to(torch.float64) for matrix in (torch.eye(4), torch.eye(4).to_sparse())]
    capture = session.stop("end")
    assert [each.is_sparse for each in copies] == [False, True]
    [counted] = [call for call in capture.calls if call.what == "Tensor.to"]
    assert counted.count == 2 and counted.facts["bytes"] == 64
