"""Fixes that are a setting: one line at the top of the script."""

import ast

from slipstream.run.diff.calls import called_name
from slipstream.run.diff.head import TopLine
from slipstream.run.diff.measured import best_number
from slipstream.run.diff.source import Edit, NoEdit
from slipstream.run.diff.workspace import Workspace
from slipstream.run.fix import Situation
from slipstream.run.memory import NEVER, VARIABLE

Changes = list[Edit | TopLine]


def kept_memory(space: Workspace, situation: Situation) -> Changes:
    """A variable that torch's allocator reads when it is loaded."""
    if space.is_in_package:
        raise NoEdit(f"torch may be loaded before the script: set {VARIABLE}={NEVER} yourself")
    line = f'os.environ.setdefault("{VARIABLE}", "{NEVER}")'
    reason = "before torch: freed memory is kept"
    return [TopLine("os", f"{line}  # {reason}", is_first=True)]


def threads(space: Workspace, situation: Situation) -> Changes:
    """The number that was measured, in place of what the script asks for."""
    number = best_number(situation)
    source = space.main()
    asked = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and called_name(node) == "set_num_threads" and node.args
    ]
    if any(source.is_in_function(call) for call in asked):
        # It may be one of a loader's workers.
        raise NoEdit(f"torch.set_num_threads({number}): it is set inside of a function")
    if not asked:
        return [TopLine("torch", f"torch.set_num_threads({number})")]
    return [
        Edit(source.path, source.start(call.args[0]), source.end(call.args[0]), str(number))
        for call in asked
    ]


def tf32(space: Workspace, situation: Situation) -> Changes:
    """Of products and of convolutions."""
    return [
        TopLine("torch", 'torch.set_float32_matmul_precision("high")'),
        TopLine("torch", "torch.backends.cudnn.allow_tf32 = True"),
    ]


def own_kernels(space: Workspace, situation: Situation) -> Changes:
    """Until the script sets it itself."""
    return [TopLine("torch", "torch._C._set_mkldnn_enabled(False)")]


def cudnn_benchmark(space: Workspace, situation: Situation) -> Changes:
    """Until the script sets it itself."""
    return [TopLine("torch", "torch.backends.cudnn.benchmark = True")]
