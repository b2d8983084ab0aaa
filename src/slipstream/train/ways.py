"""How an optimizer of torch goes over its parameters. `update_by` needs torch alone: it is a part
of the code that a recipe gives away.
"""

from typing import Any

import torch

from slipstream.errors import UsageError

_FUSED = ("SGD", "Adam", "AdamW", "Adagrad")


def update_by(optimizer: Any, way: str) -> None:
    """Let it update all parameters "fused" in one kernel, by "foreach" over lists of them, or in a
    "loop"; also when it has loaded a checkpoint, which has the way of its own run. What it has kept
    so far stays.
    """

    def switch(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            group["foreach"] = way == "foreach"
            if "fused" in group:
                group["fused"] = way == "fused"
            for parameter in group["params"]:
                kept = optimizer.state.get(parameter, {})
                if isinstance(kept.get("step"), torch.Tensor) and not group.get("capturable"):
                    place = parameter.device if way == "fused" else torch.device("cpu")
                    kept["step"] = kept["step"].to(place, torch.float32)
        if hasattr(optimizer, "_step_supports_amp_scaling"):
            optimizer._step_supports_amp_scaling = way == "fused"

    switch(optimizer)
    optimizer.register_load_state_dict_post_hook(switch)


def why_not(optimizer: Any, way: str) -> str | None:
    """Why an optimizer cannot be switched; None where it can."""
    groups = optimizer.param_groups
    name = type(optimizer).__name__
    if not type(optimizer).__module__.startswith("torch.optim."):
        return f"{name} is not an optimizer of torch"
    if any("foreach" not in group for group in groups):
        return f"{name} has one way only"
    if way == "fused" and (name not in _FUSED or any("fused" not in group for group in groups)):
        return f"{name} has no fused form"
    if any(group.get("capturable") or group.get("differentiable") for group in groups):
        return f"{name} is capturable or differentiable"
    if all(group.get(way) for group in groups):
        return "it is on"
    return _why_not_parameters(groups, way)


def expect_way(optimizer: Any, way: str) -> None:
    """Raises `UsageError` for an optimizer that would fail in it, or ignore it."""
    name, groups = type(optimizer).__name__, optimizer.param_groups
    if any("foreach" not in group for group in groups):
        raise UsageError(f"update is {way!r}, but {name} has one way only; give update=None.")
    if way == "fused" and any("fused" not in group for group in groups):
        raise UsageError(f"update is 'fused', which {name} is not; give 'foreach', 'loop' or None.")


def _why_not_parameters(groups: list[dict[str, Any]], way: str) -> str | None:
    parameters = [one for group in groups for one in group["params"]]
    if any(type(one) not in (torch.nn.Parameter, torch.Tensor) for one in parameters):
        return "parameters are of a class of their own"
    if way == "fused" and not all(one.is_floating_point() for one in parameters):
        return "a parameter is no real number"
    undecided = all(group["foreach"] is None and not group.get("fused") for group in groups)
    if way == "foreach" and undecided and all(one.is_cuda for one in parameters):
        return "torch does so by itself here"
    return None
