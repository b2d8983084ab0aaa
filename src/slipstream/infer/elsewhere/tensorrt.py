"""TensorRT through Torch-TensorRT: built and tried in a process of its own, which leaves a
TorchScript module with the engines inside. For the shapes of the example; not run yet where there
is a GPU.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from slipstream.infer.elsewhere.asking import CannotExport, asked, check
from slipstream.infer.elsewhere.engine import Answer, Elsewhere
from slipstream.infer.elsewhere.process import run_child
from slipstream.infer.elsewhere.program import Flat
from slipstream.infer.elsewhere.signature import Signature, Taken
from slipstream.infer.keeping import TookTooLong
from slipstream.infer.quiet import first_line, quietly
from slipstream.infer.shell import emptied
from slipstream.infer.subject import Subject

# compiled: what TensorRT cannot do stays in torch. embedded: one engine for all of it.
How = Literal["compiled", "embedded"]
_LIMIT_S = 300.0
_CHILD = "slipstream.infer.elsewhere.tensorrt_child"


def with_tensorrt(model: nn.Module, subject: Subject, how: How) -> Elsewhere:
    """Raises `CannotExport`, `RuntimeFailed`, or what loading the module raises."""
    inputs = subject.inputs.copy()
    tensors, arguments = emptied((inputs.args, dict(sorted(inputs.kwargs.items()))))
    gives, result = asked(model, arguments, tensors)
    check(arguments, tensors, result, gives)
    takes = tuple(Taken(tuple(each.shape), each.dtype, is_batch=False) for each in tensors)
    with tempfile.TemporaryDirectory(prefix="slipstream-tensorrt-") as folder:
        answer = _built(Flat(model, arguments), tensors, how, Path(folder))
    signature = Signature(arguments, takes, 0, 0, subject.device.type)
    return Elsewhere(model, answer, signature, result)


def _built(flat: nn.Module, tensors: Sequence[torch.Tensor], how: How, place: Path) -> Answer:
    with quietly(), torch.no_grad():
        try:
            program = torch.export.export(flat, tuple(tensors), strict=False)
            torch.export.save(program, str(place / "program.pt2"))
        except TookTooLong:
            raise
        except Exception as error:
            raise CannotExport(f"cannot be exported: {first_line(error)}") from None
    torch.save(list(tensors), place / "inputs.pt")
    spec = {"parent": os.getpid(), "how": how}
    (place / "spec.json").write_text(json.dumps(spec))
    run_child(place, _CHILD, "TensorRT", _LIMIT_S)
    import_module("torch_tensorrt")  # engines are a class of its own to TorchScript
    with quietly():
        loaded = torch.jit.load(str(place / "made.ts"))  # type: ignore[no-untyped-call]
    return lambda given: in_order(loaded(*given))


def in_order(result: Any) -> list[torch.Tensor]:
    """The tensors of what a module of TorchScript gives: one of them is given as it is."""
    return [result] if isinstance(result, torch.Tensor) else list(result)
