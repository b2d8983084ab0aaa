"""AOTInductor: a model is compiled and called in a process of its own first, which leaves a
package. What crashes or hangs there is never loaded here.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from slipstream.infer.elsewhere.process import run_child
from slipstream.infer.inputs import Inputs

_LIMIT_S = 300.0
_WITH_OPERATORS = ("torchvision", "torchaudio", "torchao")
_CHILD = "slipstream.infer.elsewhere.packaged_child"


def packaged(model: nn.Module, inputs: Inputs, device: torch.device) -> Any:
    """What answers calls like this one. Raises what torch.export raises, or `RuntimeFailed`."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    with tempfile.TemporaryDirectory(
        prefix="slipstream-aot-", ignore_cleanup_errors=True
    ) as folder:
        place = Path(folder)
        with torch.no_grad():
            program = torch.export.export(model, inputs.args, dict(inputs.kwargs), strict=False)
        torch.export.save(program, str(place / "program.pt2"))
        torch.save([list(inputs.args), dict(inputs.kwargs)], place / "inputs.pt")
        spec = {
            "parent": os.getpid(),
            "device": device.type,
            "threads": torch.get_num_threads(),  # a part of what is compiled
            "packages": [name for name in _WITH_OPERATORS if name in sys.modules],
            "cache": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or default_cache_dir(),
        }
        (place / "spec.json").write_text(json.dumps(spec))
        run_child(place, _CHILD, "AOTInductor", _LIMIT_S)
        return torch._inductor.aoti_load_package(str(place / "model.pt2"))
