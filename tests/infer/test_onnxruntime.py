"""ONNX Runtime as a variant: in float32, and with int8."""

import copy
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from typing import Any

import psutil
import pytest
import torch
from torch import nn

import slipstream
from slipstream.infer import known, search
from slipstream.infer.calibration import record_calls
from slipstream.infer.changes.onnxruntime import (
    ONNXRUNTIME,
    ONNXRUNTIME_ALONE,
    ONNXRUNTIME_INT8,
)
from slipstream.infer.changes.openvino import OPENVINO_INT8
from slipstream.infer.elsewhere.engine import Elsewhere
from slipstream.infer.elsewhere.process import RuntimeFailed
from slipstream.infer.inputs import Inputs
from slipstream.infer.subject import Subject
from tests.infer.exports import NAMES, NotAsked, assert_same, batch_of, subject
from tests.infer.models import Branching, resnet

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@cache
def built(name: str) -> Elsewhere:
    made = ONNXRUNTIME.apply(subject(name).copied(), subject(name))
    assert isinstance(made, Elsewhere)
    return made


def asked(model: Any, inputs: Inputs) -> Any:
    with torch.inference_mode():
        return inputs(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_gives_what_the_model_gives_for_any_batch(name: str) -> None:
    assert ONNXRUNTIME.why_not(subject(name)) is None
    made, model = built(name), subject(name).model
    own, made.model = made.model, NotAsked()
    try:
        for inputs in (subject(name).inputs, *(batch_of(name, size) for size in (1, 2, 5))):
            given = inputs.copy()
            assert_same(asked(made, given), asked(model, inputs), 1e-5)
            for one, other in zip(given.tensors(), inputs.tensors(), strict=True):
                assert torch.equal(one, other)
    finally:
        made.model = own


def test_results_that_are_held_stay_what_they_are() -> None:
    made = built("resnet")
    first = asked(made, batch_of("resnet", 2))
    before = first.clone()
    second = asked(made, batch_of("resnet", 3))
    assert torch.equal(first, before)
    with torch.inference_mode():
        first.zero_()  # the caller's own, to write to
    assert torch.equal(asked(made, batch_of("resnet", 2)), before)
    assert second.shape == (3, 10)


def test_results_do_not_need_the_runtime_any_more() -> None:
    made = ONNXRUNTIME.apply(subject("lstm").copied(), subject("lstm"))
    result, _ = asked(made, subject("lstm").inputs)
    before = result.clone()
    del made
    assert torch.equal(result, before)


def test_inputs_of_any_layout_are_taken() -> None:
    made, model = built("resnet"), subject("resnet").model
    x = torch.randn(2, 32, 32, 3).permute(0, 3, 1, 2)
    for inputs in (x, x.contiguous(memory_format=torch.channels_last), x.clone().requires_grad_()):
        assert_same(asked(made, Inputs((inputs,))), asked(model, Inputs((inputs,))), 1e-5)


def test_calls_of_another_form_go_to_a_copy_of_the_model() -> None:
    made, model = built("dataclass"), subject("dataclass").model
    x, y = subject("dataclass").inputs.args
    for other in (
        Inputs((x, y), {"scale": 2.0}),
        Inputs((x,), {"unused": y}),
        Inputs((x, y.double())),
        Inputs((torch.randn(3, 4, 6), y)),
        Inputs((x, y[:2])),
    ):
        assert made.signature.tensors(other.args, other.kwargs) is None
        assert_same(asked(made, other), asked(model, other), 1e-6)
    assert made.model is not model


def test_other_pictures_than_the_example_go_to_a_copy_of_the_model() -> None:
    made, model = built("resnet"), subject("resnet").model
    inputs = Inputs((torch.randn(2, 3, 48, 40),))
    assert_same(asked(made, inputs), asked(model, inputs), 1e-6)


def test_it_can_be_copied() -> None:
    again = copy.deepcopy(built("resnet"))
    assert again is not built("resnet")
    inputs = subject("resnet").inputs
    assert_same(asked(again, inputs), asked(built("resnet"), inputs), 0.0)


def test_it_can_be_called_from_several_threads() -> None:
    made, model = built("resnet"), subject("resnet").model
    inputs = [batch_of("resnet", size) for size in (1, 2, 3, 4) * 5]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda each: asked(made, each), inputs))
    for each, result in zip(inputs, results, strict=True):
        assert_same(result, asked(model, each), 1e-5)


def test_threads_are_as_many_as_torch_takes_and_do_not_spin() -> None:
    before = torch.get_num_threads(), os.sched_getaffinity(0), threading.active_count()
    made = built("resnet")
    asked(made, subject("resnet").inputs)
    assert before == (torch.get_num_threads(), os.sched_getaffinity(0), threading.active_count())
    process = psutil.Process()
    others = process.num_threads()
    more = ONNXRUNTIME.apply(subject("resnet").copied(), subject("resnet"))
    asked(more, subject("resnet").inputs)
    assert process.num_threads() - others <= torch.get_num_threads() - 1
    start = process.cpu_times()
    threading.Event().wait(0.5)
    used = process.cpu_times()
    assert used.user + used.system - start.user - start.system < 0.3
    del more
    assert process.num_threads() == others


def test_a_model_that_cannot_be_exported_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, quick=(ONNXRUNTIME,))
    found = slipstream.optimize_model(Branching(), torch.randn(3, 4), budget_s=60)
    row = next(row for row in found.rows if row.name == "onnxruntime")
    assert (row.state, row.why) == (
        "failed",
        "CannotExport: cannot be exported: what it computes depends on the values that it is given",
    )


def test_one_thread_is_another_variant_only_where_there_are_more() -> None:
    own = subject("lstm")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert ONNXRUNTIME_ALONE.why_not(own) == "torch takes one thread already"
        torch.set_num_threads(2)
        assert ONNXRUNTIME_ALONE.why_not(own) is None
    finally:
        torch.set_num_threads(threads)


def only(monkeypatch: pytest.MonkeyPatch, **stages: Any) -> None:
    """A search of these changes alone, that does not measure for long."""
    for name in (
        "QUICK",
        "COMPILED",
        "PRECISIONS",
        "QUICKLY_QUANTIZED",
        "QUANTIZED",
        "LAYOUTS",
        "LIBRARIES",
    ):
        monkeypatch.setattr(known, name, stages.get(name.lower(), ()))
    monkeypatch.setattr(search, "thread_counts", list)
    monkeypatch.setattr(search, "_FINAL_S", 0.5)


def agrees(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return (model(batch[0]).argmax(-1) == batch[1]).float()


def task_of(model: nn.Module, batches: int = 9) -> list[tuple[torch.Tensor, torch.Tensor]]:
    own = torch.Generator().manual_seed(1)
    with torch.no_grad():
        pictures = [torch.randn(16, 3, 32, 32, generator=own) for _ in range(batches)]
        return [(each, model(each).argmax(-1)) for each in pictures]


@pytest.mark.slow
def test_int8_is_calibrated_with_the_data_and_judged_by_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    int8_changes = (OPENVINO_INT8, ONNXRUNTIME_INT8)
    only(monkeypatch, quick=(ONNXRUNTIME, ONNXRUNTIME_ALONE), quickly_quantized=int8_changes)
    torch.manual_seed(0)
    model = resnet(16, 1).eval()
    found = slipstream.optimize_model(
        model, torch.randn(4, 3, 32, 32), accuracy="lossy", metric=agrees, data=task_of(model),
        max_drop=0.2, also=[torch.randn(3, 3, 32, 32), torch.randn(2, 3, 40, 40)],
    )  # fmt: skip
    rows = {row.name: row for row in found.rows}
    assert rows["onnxruntime"].state in ("won", "passed", "slower"), rows["onnxruntime"].why
    assert rows["onnxruntime"].error < 1e-5
    if torch.get_num_threads() > 1:
        assert rows["onnxruntime on 1 thread"].error < 1e-5
    for name in ("openvino int8", "onnxruntime int8")[find_spec("openvino") is None :]:
        int8 = rows[name]
        assert int8.state in ("won", "passed", "slower"), int8.why
        assert 1e-4 < int8.error < 0.1
        assert int8.kind == "lossy"


def test_int8_needs_data_and_something_to_quantize() -> None:
    assert "no data to calibrate with" in str(ONNXRUNTIME_INT8.why_not(subject("resnet")))
    x = torch.randn(2, 4)
    other = Subject(nn.Hardtanh().eval(), Inputs((x,)), (Inputs((x,)),))
    assert ONNXRUNTIME_INT8.why_not(other) is None
    with pytest.raises(RuntimeFailed, match="nothing in the model could be quantized"):
        ONNXRUNTIME_INT8.apply(other.copied(), other)


def test_int8_refuses_data_of_another_form() -> None:
    model = nn.Linear(4, 4).eval()
    calls = record_calls(model, lambda model, batch: model(batch)[0, 0], [torch.randn(3, 9, 4)])
    other = Subject(model, Inputs((torch.randn(3, 4),)), tuple(calls))
    with pytest.raises(ValueError, match="none of 1 calls to calibrate with has the form"):
        ONNXRUNTIME_INT8.apply(other.copied(), other)


def test_it_needs_no_runtime_to_be_asked_about() -> None:
    script = (
        "import sys, slipstream.infer.known; "
        "print({'onnxruntime', 'openvino', 'onnx', 'torch_tensorrt'} & set(sys.modules))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout == "set()\n"
