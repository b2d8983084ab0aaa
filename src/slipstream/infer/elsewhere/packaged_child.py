"""The process that compiles and tries a package of AOTInductor:
`python -m slipstream.infer.elsewhere.packaged_child SPEC`.

The program and its inputs lie beside SPEC; the package is left there as `model.pt2`.
"""

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from slipstream.infer.elsewhere.child import leave_errors
from slipstream.orphan import end_with_parent

_TRIES = 3


def main() -> None:
    """Do what the file says."""
    spec = Path(sys.argv[1])
    with leave_errors(spec.parent):
        run(json.loads(spec.read_text()), spec.parent)


def run(values: dict[str, Any], place: Path) -> None:
    """Compile with weights as constants, load and call."""
    end_with_parent(values["parent"])
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = values["cache"]
    torch.set_num_threads(values["threads"])
    for package in values["packages"]:
        import_module(package)  # the program may have operators of it
    program = torch.export.load(str(place / "program.pt2"))
    args, kwargs = torch.load(place / "inputs.pt", weights_only=True)
    with torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(place / "model.pt2"),
            inductor_configs={"freezing": True},
        )
        loaded = torch._inductor.aoti_load_package(package)
        for _ in range(_TRIES):
            loaded(*args, **kwargs)
    if values["device"] == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
