"""`fused-optimizer`: torch's optimizers update all parameters at once.

Groups that leave the choice to torch, or ask for a loop, are switched when they are about to make a
step: to the fused form where all of their tensors allow it, else to the one for lists of tensors.
Gradients are looked at in every step, and states once: the fused form takes for granted that a
parameter, its gradient and its state lie in the same order, and that all have a state or none.
What the script saves is what it would have saved: the choice, and where step counts lie.
"""

import statistics
import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo

NAME = "fused-optimizer"
RULE = "for-loop-optimizer"
_DEVICES = ("cuda", "cpu")
_FUSED = {"SGD": _DEVICES, "Adam": _DEVICES, "AdamW": _DEVICES, "Adagrad": ("cpu",)}
_CHOICES = ("foreach", "fused")


def applies(situation: Situation) -> tuple[bool, str]:
    """Where an optimizer of torch works in its default way, and a copy of it was not measured to be
    slower in the other ones.
    """
    found = [entry for entry in situation.capture.optimizers if _can_choose(entry)]
    if not found:
        return False, "no optimizer that could do it in another way"
    for entry in found:
        way = best_way(situation)
        if way is not None:
            return True, f"{entry['class']} has {entry['parameters']} parameters: {way}"
    return False, "measured: the other ways are not faster"


def _can_choose(entry: dict[str, Any]) -> bool:
    return bool(
        entry["is_torchs"]
        and not entry["foreach"]
        and entry["fused"] is None
        and not entry.get("capturable")
        and entry.get("device") in _DEVICES
    )


def best_way(situation: Situation) -> str | None:
    """By the doctor's measurements, where there are any; None: the loop. On processors the fused
    form starts all threads for each parameter, and is slow where cores are busy.
    """
    ways = {
        way: [
            statistics.median(replay["now_ms"]) / statistics.median(replay["then_ms"])
            for replay in situation.capture.replays
            if replay["name"] == f"optimizer-{way}"
        ]
        for way in ("fused", "foreach")
    }
    gains = {way: max(values) for way, values in ways.items() if values}
    if not gains:
        return "fused" if situation.on_device else "foreach"
    best = max(gains, key=lambda way: gains[way])
    return best if gains[best] > 1 else None


def apply(situation: Situation) -> Undo:
    """To optimizers of torch itself, not to classes made of them."""
    switched = _Switched(situation, best_way(situation) or "foreach")
    patches = Patches()
    patches.replace(torch.optim.Optimizer, "state_dict", switched.wrap_state_dict)
    patches.replace(torch.optim.Optimizer, "load_state_dict", switched.wrap_load)
    handle = register_optimizer_step_pre_hook(switched.before_step)

    def undo() -> None:
        handle.remove()
        patches.undo()
        switched.put_back()

    return undo


class _Switched:
    """Knows what groups were before."""

    def __init__(self, situation: Situation, way: str) -> None:
        self._situation, self._way = situation, way
        # Of each group: what it was asked for.
        self._own: weakref.WeakKeyDictionary[Any, dict[int, dict[str, Any]]] = (
            weakref.WeakKeyDictionary()
        )
        self._known: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Of any optimizer."""
        if NAME in self._situation.failures or torch.compiler.is_compiling():
            return
        if not type(optimizer).__module__.startswith("torch.optim."):
            return
        try:
            for number, group in enumerate(optimizer.param_groups):
                self._switch(optimizer, number, group)
        except Exception as error:
            self._put_back(optimizer)
            self._situation.give_up(NAME, error)

    def put_back(self) -> None:
        """All of them, as they were."""
        for optimizer in list(self._own):
            self._put_back(optimizer)

    def wrap_state_dict(self, original: Any) -> Any:
        def state_dict(optimizer: Any) -> Any:
            saved = original(optimizer)
            own = self._own.get(optimizer)
            if not own:
                return saved
            try:
                return self._as_written(saved, own)
            except Exception as error:
                self._situation.give_up(NAME, error)
                return saved

        return state_dict

    def wrap_load(self, original: Any) -> Any:
        def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._known.pop(optimizer, None)
            return original(optimizer, *args, **kwargs)

        return load_state_dict

    def _switch(self, optimizer: Any, number: int, group: dict[str, Any]) -> None:
        own = self._own.setdefault(optimizer, {})
        self._known.setdefault(optimizer, {})
        fused, foreach = _way(group, "fused"), _way(group, "foreach")
        if number not in own or _asked(group) not in (own[number], fused, foreach):
            own.pop(number, None)
            if not may_be_switched(group):
                return
            own[number] = _asked(group)
        wanted = own[number]
        if all(p.grad is None or p.grad.layout is torch.strided for p in group["params"]):
            if self._way == "fused" and can_be_fused(optimizer, group, self._known[optimizer]):
                wanted = fused
            elif wanted["foreach"] is None:
                wanted = foreach
        if _asked(group) == wanted:
            return
        group.update(wanted)
        if wanted is fused:
            _count_on_devices(optimizer, group)
        ways = [f"{name}=True" for name in _CHOICES if wanted.get(name)] or ["as written"]
        self._situation.note(NAME, f"{type(optimizer).__name__}: {ways[0]}")

    def _put_back(self, optimizer: Any) -> None:
        for number, own in self._own.pop(optimizer, {}).items():
            group = optimizer.param_groups[number]
            group.update(own)
            for parameter in group["params"]:
                _count_on_host(optimizer.state.get(parameter, {}))

    def _as_written(self, saved: dict[str, Any], own: dict[int, dict[str, Any]]) -> dict[str, Any]:
        groups = [
            {**group, **own.get(number, {})} for number, group in enumerate(saved["param_groups"])
        ]
        ours = {p for number in own for p in saved["param_groups"][number]["params"]}
        state = {key: dict(v) if key in ours else v for key, v in saved["state"].items()}
        for key in ours & state.keys():
            _count_on_host(state[key])
        return {**saved, "state": state, "param_groups": groups}


def _asked(group: dict[str, Any]) -> dict[str, Any]:
    return {name: group[name] for name in _CHOICES if name in group}


def _way(group: dict[str, Any], way: str) -> dict[str, Any]:
    return {name: True if name == way else None for name in _CHOICES if name in group}


def may_be_switched(group: dict[str, Any]) -> bool:
    """Whether the script left it open, or asked for a loop, and nothing else stands against it."""
    return (
        "foreach" in group
        and not group["foreach"]
        and group.get("fused") is None
        and not group.get("capturable")
        and not group.get("differentiable")
        and not any(isinstance(value, torch.Tensor) for value in group.values())
        and all(
            type(parameter) in (torch.nn.Parameter, torch.Tensor)
            and parameter.device.type in _DEVICES
            for parameter in group["params"]
        )
    )


def can_be_fused(optimizer: Any, group: dict[str, Any], known: dict[Any, Any]) -> bool:
    """Whether the fused form would give the right result for what is there now. `known` are
    strides of parameters whose state was looked at; what has none yet is looked at again.
    """
    devices = _FUSED.get(type(optimizer).__name__, ())
    if "fused" not in group or any(p.device.type not in devices for p in group["params"]):
        return False
    are_new, are_known = [], False
    for parameter in group["params"]:
        gradient = parameter.grad
        if gradient is None:
            continue
        order = parameter.stride()
        if gradient.stride() != order:
            return False
        if known.get(id(parameter)) != order:
            are_new.append(parameter)
        else:
            are_known = True
    if not are_new:
        return True
    state = optimizer.state
    if not all(_fits(parameter, state.get(parameter, {})) for parameter in are_new):
        return False
    begun = [p for p in are_new if any(value is not None for value in state.get(p, {}).values())]
    known.update((id(parameter), parameter.stride()) for parameter in begun)
    # SGD begins with a momentum that is the gradient: for all of them, or for none.
    some_have_none = len(begun) < len(are_new)
    return not (group.get("momentum") and some_have_none and (begun or are_known))


def _fits(parameter: torch.Tensor, state: dict[str, Any]) -> bool:
    gradient = parameter.grad
    return (
        parameter.is_floating_point()
        and gradient is not None
        and gradient.dtype == parameter.dtype
        and _is_dense(parameter)
        and all(
            value is None or (value.stride(), value.dtype) == (parameter.stride(), parameter.dtype)
            for name, value in state.items()
            if name != "step"
        )
    )


def _is_dense(parameter: torch.Tensor) -> bool:
    if parameter.is_contiguous():
        return True
    return parameter.ndim == 4 and parameter.is_contiguous(memory_format=torch.channels_last)


def _count_on_devices(optimizer: Any, group: dict[str, Any]) -> None:
    for parameter in group["params"]:
        state = optimizer.state.get(parameter, {})
        if isinstance(state.get("step"), torch.Tensor):
            state["step"] = state["step"].to(device=parameter.device, dtype=torch.float32)


def _count_on_host(state: dict[str, Any]) -> None:
    """Where torch has it without the fused form."""
    step = state.get("step")
    if isinstance(step, torch.Tensor):
        state["step"] = step.to(device="cpu", dtype=torch.get_default_dtype())


FIX = Fix(NAME, "N", "optimizers update all parameters at once", (RULE,), applies, apply)
