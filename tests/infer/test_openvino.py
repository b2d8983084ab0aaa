"""OpenVINO as a variant: with the precision that is asked for, and without telling anybody."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import slipstream
from slipstream.infer import known, search
from slipstream.infer.change import Change
from slipstream.infer.changes.onnxruntime import ONNXRUNTIME
from slipstream.infer.changes.openvino import OPENVINO, OPENVINO_BF16, OPENVINO_F16
from slipstream.infer.elsewhere.engine import Elsewhere
from slipstream.infer.elsewhere.exported import exported
from slipstream.infer.elsewhere.process import RuntimeFailed
from slipstream.infer.elsewhere.runtimes import Runtime
from slipstream.infer.elsewhere.trial import in_child
from slipstream.infer.elsewhere.whole_numbers import OtherNumbers
from slipstream.infer.inputs import Inputs, inputs_of
from slipstream.infer.subject import Subject
from slipstream.processor import cpu_flags
from tests.infer.exports import NAMES, NotAsked, assert_same, batch_of, subject

pytest.importorskip("onnxscript")
# Importing it here would tell its maker.
pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="needs openvino")

HAS_F16 = OPENVINO_F16.why_not(subject("lstm")) is None
HAS_BF16 = OPENVINO_BF16.why_not(subject("lstm")) is None


@cache
def built(name: str) -> Elsewhere:
    made = OPENVINO.apply(subject(name).copied(), subject(name))
    assert isinstance(made, Elsewhere)
    return made


def asked(model: Any, inputs: Inputs) -> Any:
    with torch.inference_mode():
        return inputs(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_gives_what_the_model_gives_for_any_batch(name: str) -> None:
    assert OPENVINO.why_not(subject(name)) is None
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
    held = [asked(made, batch_of("resnet", size)) for size in (2, 2, 3)]
    before = [each.clone() for each in held]
    with torch.inference_mode():
        held[0].zero_()  # the caller's own, to write to
    assert torch.equal(asked(made, batch_of("resnet", 2)), before[0])
    assert torch.equal(held[1], before[1])
    assert torch.equal(held[2], before[2])
    assert len({each.data_ptr() for each in held}) == 3


def test_results_do_not_need_the_runtime_any_more() -> None:
    made = OPENVINO.apply(subject("lstm").copied(), subject("lstm"))
    result, _ = asked(made, subject("lstm").inputs)
    before = result.clone()
    del made
    assert torch.equal(result, before)


def test_calls_from_several_threads_wait_for_each_other() -> None:
    made, model = built("resnet"), subject("resnet").model
    inputs = [batch_of("resnet", size) for size in (1, 2, 3, 4) * 5]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda each: asked(made, each), inputs))
    for each, result in zip(inputs, results, strict=True):
        assert_same(result, asked(model, each), 1e-5)


def test_threads_and_where_they_run_stay_as_they_were() -> None:
    before = torch.get_num_threads(), os.sched_getaffinity(0), threading.active_count()
    rng = torch.get_rng_state()
    made = OPENVINO.apply(subject("resnet").copied(), subject("resnet"))
    asked(made, subject("resnet").inputs)
    assert before == (torch.get_num_threads(), os.sched_getaffinity(0), threading.active_count())
    assert torch.equal(rng, torch.get_rng_state())


@pytest.mark.skipif(not HAS_F16, reason="the processor has no arithmetic in f16")
def test_fewer_bits_are_another_variant() -> None:
    model = subject("resnet").model
    made = OPENVINO_F16.apply(subject("resnet").copied(), subject("resnet"))
    expected = asked(model, subject("resnet").inputs)
    found = asked(made, subject("resnet").inputs)
    apart = float((found - expected).norm() / expected.norm())
    assert 1e-5 < apart < 0.03
    assert OPENVINO_F16.kind == OPENVINO_BF16.kind == "mixed"
    assert found.dtype == torch.float32


@pytest.mark.skipif(not HAS_F16, reason="the processor has no arithmetic in f16")
def test_numbers_that_do_not_fit_are_found_out_before_they_are_used() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Softmax(-1)).eval()
    nn.init.constant_(model[0].weight, 300.0)
    own = Subject(model, Inputs((torch.full((2, 64), 300.0),)))
    with pytest.raises(RuntimeFailed, match="OpenVINO gives 128 of 128 values that are no finite"):
        OPENVINO_F16.apply(own.copied(), own)


@pytest.mark.skipif(HAS_BF16 and HAS_F16, reason="the processor has arithmetic in both")
def test_a_precision_that_the_processor_does_not_have_is_not_replaced_by_another() -> None:
    file = exported(subject("lstm")).file
    for change, precision, is_there in (
        (OPENVINO_BF16, "bf16", HAS_BF16), (OPENVINO_F16, "f16", HAS_F16),
    ):  # fmt: skip
        if is_there:
            continue
        assert change.why_not(subject("lstm")) == f"the processor has no arithmetic in {precision}"
        try:
            Runtime("openvino", 1, precision).open(file)
        except RuntimeError as error:
            assert f"where {precision} was asked for" in str(error)
        else:
            assert precision == "bf16"  # OpenVINO makes do with AVX-512


@pytest.mark.skipif(not HAS_BF16, reason="the processor has no arithmetic in bf16")
def test_bf16_is_computed_in_bf16() -> None:
    made = OPENVINO_BF16.apply(subject("resnet").copied(), subject("resnet"))
    expected = asked(subject("resnet").model, subject("resnet").inputs)
    apart = (asked(made, subject("resnet").inputs) - expected).norm() / expected.norm()
    assert 1e-4 < float(apart) < 0.05


def test_nobody_is_told_that_it_was_imported() -> None:
    script = (
        "import sys; from pathlib import Path; "
        "from slipstream.infer.elsewhere.runtimes import Runtime; "
        "Runtime('openvino', 1).open(Path(sys.argv[1])); "
        "print('openvino' in sys.modules, 'torch' in sys.modules, "
        "[name for name in sys.modules if name.startswith('openvino_telemetry')]); "
        "import openvino_telemetry"  # hidden only meanwhile
    )
    file = exported(subject("lstm")).file
    said = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True
    )
    assert said.stdout == "True False []\n"


def test_what_it_cannot_read_is_said_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"no graph at all")
    with pytest.raises(RuntimeFailed, match="OpenVINO raised RuntimeError: Unable to read"):
        in_child(file, Runtime("openvino", 1), [[np.ones(2, np.float32)]])


def test_a_batch_of_nothing_harms_nobody() -> None:
    # The release that this was written with dies of it.
    own = Subject(nn.Linear(4, 4).eval(), Inputs((torch.randn(0, 4),)))
    try:
        made = OPENVINO.apply(own.copied(), own)
    except RuntimeFailed as error:
        assert "OpenVINO crashed" in str(error)
    else:
        assert asked(made, own.inputs).shape == (0, 4)


@pytest.mark.slow
def test_it_is_a_row_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "QUICK", (OPENVINO,))
    monkeypatch.setattr(known, "COMPILED", ())
    monkeypatch.setattr(known, "PRECISIONS", (OPENVINO_BF16, OPENVINO_F16))
    monkeypatch.setattr(known, "LAYOUTS", ())
    monkeypatch.setattr(search, "thread_counts", list)
    monkeypatch.setattr(search, "_FINAL_S", 0.5)
    own = subject("resnet")
    found = slipstream.optimize_model(own.model, own.inputs, also=[batch_of("resnet", 1)])
    rows = {row.name: row for row in found.rows}
    assert rows["openvino"].state in ("won", "passed", "slower"), rows["openvino"].why
    assert rows["openvino"].error < 1e-5
    has = {"openvino bf16": HAS_BF16, "openvino f16": HAS_F16}
    for name, is_there in has.items():
        assert (rows[name].state == "skipped") is not is_there, rows[name].why
    assert cpu_flags() or not any(has.values())


class Hashed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.table(ids % 1000)
        return found


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head((pixels * 2).float() / 255)
        return found


class Clamped(nn.Module):
    """Compares, clamps, adds, looks up and gives back."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(60, 4)

    def forward(self, ids: torch.Tensor) -> Any:
        return self.table((ids + 3).clamp(0, 50)) * (ids > 7).unsqueeze(-1), ids.flip(0)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (Hashed(), torch.randint(0, 100_000, (8, 4))),
        (Doubled(), torch.randint(0, 99, (8, 4), dtype=torch.uint8)),
    ],
    ids=["remainders", "bytes that run over"],
)
def test_whole_numbers_that_it_computes_in_another_way(model: Any, given: torch.Tensor) -> None:
    subject = Subject(model.eval(), inputs_of(given))
    with pytest.raises(OtherNumbers, match=r"whole numbers of (64|8) bits for M"):
        OPENVINO.apply(subject.copied(), subject)


class Divided(nn.Module):
    """Whole numbers that the file holds as floating-point ones in between."""

    def forward(self, ids: torch.Tensor) -> Any:
        return torch.div(ids, 1000, rounding_mode="trunc"), torch.div(ids, 7, rounding_mode="floor")


class Extremes(nn.Module):
    def forward(self, ids: torch.Tensor) -> Any:
        return ids.amax(1), torch.minimum(ids, ids.flip(1)), torch.fmod(ids, 12_345)


@pytest.mark.parametrize("model", [Divided(), Extremes()], ids=["divided", "extremes"])
def test_large_whole_numbers_that_onnx_runtime_has_no_bits_for(model: nn.Module) -> None:
    subject = Subject(model.eval(), inputs_of(torch.randint(0, 1000, (8, 4))))
    made = ONNXRUNTIME.apply(subject.copied(), subject)
    assert isinstance(made, Elsewhere)
    own = torch.Generator().manual_seed(0)
    for most in (2**24, 2**26, 2**31, 2**40):
        given = torch.randint(0, most, (8, 4), generator=own)
        assert all(map(torch.equal, made(given), model(given))), most


class LookedUp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(8, 4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table[ids] * 2


def test_rows_that_openvino_would_take_from_anywhere() -> None:
    given = torch.randint(0, 8, (4, 6))
    subject = Subject(LookedUp().eval(), inputs_of(given))
    with pytest.raises(OtherNumbers, match="it has no limits for the numbers of GatherND"):
        OPENVINO.apply(subject.copied(), subject)
    made = ONNXRUNTIME.apply(subject.copied(), subject)
    with pytest.raises(Exception, match="invalid index"):
        made(given + 10_000_000)


@pytest.mark.parametrize("change", [OPENVINO, ONNXRUNTIME], ids=["openvino", "onnxruntime"])
def test_large_whole_numbers_are_answered_by_the_model(change: Change) -> None:
    subject = Subject(Clamped().eval(), inputs_of(torch.randint(0, 60, (8, 4))))
    made = change.apply(subject.copied(), subject)
    for more in (0, 2**31 + 1, 2**32 - 1000, 2**32 + 5, 10**12, -(2**33)):
        given = subject.inputs.tensors()[0] + more
        with torch.no_grad():
            for answer in (made(given), made(ids=given)):
                assert all(map(torch.equal, answer, subject.model(given))), more
    assert isinstance(made, Elsewhere)
    own, made.model = made.model, NotAsked()
    try:
        made(subject.inputs.tensors()[0] % 9)
    finally:
        made.model = own
