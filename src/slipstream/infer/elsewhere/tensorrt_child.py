"""The process that builds and tries TensorRT:
`python -m slipstream.infer.elsewhere.tensorrt_child SPEC`.

The program and its inputs lie beside SPEC; the module is left there as `made.ts`.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from slipstream.infer.elsewhere.child import leave_errors
from slipstream.orphan import end_with_parent

_TRIES = 3
# In float32 as the model has it: TF32 is another change.
_SETTINGS = {"disable_tf32": True, "pass_through_build_failures": True}


def main() -> None:
    """Do what the file says."""
    spec = Path(sys.argv[1])
    with leave_errors(spec.parent):
        run(json.loads(spec.read_text()), spec.parent)


def run(values: dict[str, Any], place: Path) -> None:
    """Build, store, load again and call; raises if numbers are not finite."""
    end_with_parent(values["parent"])
    tensorrt = import_module("torch_tensorrt")
    program = torch.export.load(str(place / "program.pt2"))
    inputs = torch.load(place / "inputs.pt", weights_only=True)
    settings = {**_SETTINGS, "timing_cache_path": str(place / "timing_cache.bin")}
    file = str(place / "made.ts")
    if values["how"] == "embedded":
        _embed(tensorrt, program, inputs, settings, file)
    else:
        compiled = tensorrt.dynamo.compile(program, arg_inputs=inputs, **settings)
        tensorrt.save(compiled, file, output_format="torchscript", arg_inputs=inputs)
    loaded = torch.jit.load(file)  # type: ignore[no-untyped-call]
    for _ in range(_TRIES):
        given = loaded(*inputs)
    for tensor in [given] if isinstance(given, torch.Tensor) else given:
        if tensor.is_floating_point() and bool(torch.isnan(tensor).any()):
            raise ArithmeticError("results are not a number")


def _embed(tensorrt: Any, program: Any, inputs: list[Any], settings: Any, file: str) -> None:
    engine = tensorrt.dynamo.convert_exported_program_to_serialized_trt_engine(
        program, arg_inputs=inputs, **settings
    )
    count = len(program.graph_signature.user_outputs)
    module = tensorrt.ts.embed_engine_in_new_module(
        engine,
        input_binding_names=[str(name) for name in program.graph_signature.user_inputs],
        output_binding_names=[f"output{number}" for number in range(count)],
    )
    torch.jit.save(module, file)


if __name__ == "__main__":
    main()
