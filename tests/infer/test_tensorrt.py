"""TensorRT as a variant. What is around it runs here with a stand-in for `torch_tensorrt`: that
has wheels for CUDA only.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.infer.changes.tensorrt import TENSORRT, TENSORRT_EMBEDDED
from slipstream.infer.elsewhere.process import RuntimeFailed
from slipstream.infer.elsewhere.tensorrt import How, with_tensorrt
from slipstream.infer.inputs import Inputs
from slipstream.infer.subject import Subject
from tests.infer.exports import GivesADataclass, assert_same

_STAND_IN = """
import io, os, pathlib, torch

class Traced(torch.nn.Module):
    def __init__(self, program):
        super().__init__()
        self.module = program.module(check_guards=False)

    def forward(self, *tensors):
        return self.module(*tensors)

def _bytes(program, inputs):
    file = io.BytesIO()
    made = torch.jit.trace(Traced(program), tuple(inputs), check_trace=False, strict=False)
    torch.jit.save(made, file)
    return file.getvalue()

class dynamo:
    @staticmethod
    def compile(program, *, arg_inputs, disable_tf32, **settings):
        if os.environ.get("STAND_IN_CRASHES"):
            os.abort()
        assert disable_tf32
        return program

    @staticmethod
    def convert_exported_program_to_serialized_trt_engine(program, *, arg_inputs, **settings):
        return _bytes(program, arg_inputs)

def save(program, file, *, output_format, arg_inputs):
    assert output_format == "torchscript"
    pathlib.Path(file).write_bytes(_bytes(program, arg_inputs))

class ts:
    @staticmethod
    def embed_engine_in_new_module(engine, *, input_binding_names, output_binding_names):
        assert len(input_binding_names) == 2 and output_binding_names[0] == "output0"
        return torch.jit.load(io.BytesIO(engine))
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "torch_tensorrt.py").write_text(_STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("torch_tensorrt", None)


def asked(model: Any, inputs: Inputs) -> Any:
    with torch.inference_mode():
        return inputs(model)


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("how", ["compiled", "embedded"])
def test_what_is_built_elsewhere_answers_here(how: How) -> None:
    x, y = torch.randn(4, 6), torch.randn(4, 2)
    subject = Subject(GivesADataclass().eval(), Inputs((x,), {"unused": y}))
    made = with_tensorrt(subject.copied(), subject, how)
    for inputs in (
        subject.inputs,
        Inputs((x * 2,), {"unused": y}),
        Inputs((x[:3],), {"unused": y}),
    ):
        assert_same(asked(made, inputs), asked(subject.model, inputs), 1e-5)
    assert made.signature.tensors((x,), {"unused": y}) is not None
    assert made.signature.tensors((x[:3],), {"unused": y[:3]}) is None  # goes to the copy


@pytest.mark.usefixtures("stand_in")
def test_a_crash_while_it_is_built_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_CRASHES", "1")
    subject = Subject(nn.Linear(4, 2).eval(), Inputs((torch.randn(3, 4),)))
    with pytest.raises(RuntimeFailed, match="TensorRT crashed: Aborted"):
        with_tensorrt(subject.copied(), subject, "compiled")


@pytest.mark.parametrize("change", [TENSORRT, TENSORRT_EMBEDDED])
def test_it_is_not_tried_where_it_cannot_run(change: Any) -> None:
    subject = Subject(nn.Linear(4, 2).eval(), Inputs((torch.randn(3, 4),)))
    assert change.why_not(subject) == "the model is not on a CUDA device"
    vars(subject)["device"] = torch.device("cuda")
    why = change.why_not(subject)
    assert why is None or why == "torch_tensorrt is not installed: pip install torch-tensorrt"
