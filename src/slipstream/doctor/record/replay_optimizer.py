"""Steps of copied optimizers: for each parameter, for all at once, fused."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from slipstream.doctor.record.room import is_there_room
from slipstream.doctor.record.stopwatch import Stopwatch

if TYPE_CHECKING:
    from slipstream.doctor.record.loop import LoopHooks


def replay_optimizers(hooks: "LoopHooks", watch: Stopwatch) -> list[dict[str, Any]]:
    """Of those that work parameter by parameter, in each way that they could."""
    found = []
    for key, optimizer in list(hooks.held_optimizers.items())[:2]:
        facts = hooks.optimizers[key]
        works_singly = not facts["foreach"] and not facts["fused"] and facts["device"] == "cpu"
        if not facts["is_torchs"] or not is_there_room(facts["elements"], facts["device"]):
            continue
        if not (works_singly or (facts["foreach"] is False and not facts["fused"])):
            continue
        for name in ("fused", "foreach"):
            now, then = _step_of(optimizer, {}), _step_of(optimizer, {name: True})
            times = None if now is None or then is None else watch.compare(now, then, 0.3)
            if times is not None:
                found.append(
                    {
                        "name": f"optimizer-{name}",
                        "optimizer": key,
                        "now_ms": times[0],
                        "then_ms": times[1],
                        "where": facts["made_at"] or facts["where"],
                        "was_asked": facts["foreach"] is False,
                    }
                )
    return found


def _step_of(optimizer: Any, changes: dict[str, bool]) -> Callable[[], object] | None:
    """A step of a copy of it, with gradients of the same shapes."""
    groups = []
    for group in optimizer.param_groups:
        if not changes.keys() <= group.keys():
            return None
        copies = []
        for parameter in group["params"]:
            copied = parameter.detach().clone().requires_grad_()
            copied.grad = torch.randn_like(copied) * 1e-3
            copies.append(copied)
        groups.append({**group, **changes, "params": copies})
        if changes:
            groups[-1].update({n: None for n in ("foreach", "fused") if n not in changes})
    defaults = {**optimizer.defaults, **changes}
    if changes:
        defaults.update({n: None for n in ("foreach", "fused") if n not in changes})
    known = type(optimizer).__init__.__code__.co_varnames
    try:
        copy = type(optimizer)(groups, **{k: v for k, v in defaults.items() if k in known})
    except Exception:  # this way is not there for this optimizer
        return None
    step: Callable[[], object] = copy.step
    return step
