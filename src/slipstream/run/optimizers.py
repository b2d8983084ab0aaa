"""Optimizers of torch that work in another of their ways while a script runs.

Groups that leave the choice to torch are switched when they are about to make a step. Gradients are
looked at in every step. What the script saves is what it would have saved: the choice, and where
step counts lie.
"""

import statistics
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from slipstream.nesterov import adds_to_gradients
from slipstream.patches import Patches
from slipstream.run.fix import Situation, Undo

_CHOICES = ("foreach", "fused")
IsOpen = Callable[[Any, dict[str, Any]], bool]
IsFit = Callable[[Any, dict[str, Any], dict[Any, Any]], bool]


def switch(switched: "Switched") -> Undo:
    """Optimizers of torch itself, not of classes made of them."""
    patches = Patches()
    patches.replace(torch.optim.Optimizer, "state_dict", switched.wrap_state_dict)
    patches.replace(torch.optim.Optimizer, "load_state_dict", switched.wrap_load)
    handle = register_optimizer_step_pre_hook(switched.before_step)

    def undo() -> None:
        handle.remove()
        patches.undo()
        switched.put_back()

    return undo


def measured_gain(situation: Situation, way: str) -> float | None:
    """How many times as fast a copy of an optimizer was in this way; None where none was tried."""
    gains = [
        statistics.median(replay["now_ms"]) / statistics.median(replay["then_ms"])
        for replay in situation.capture.replays
        if replay["name"] == f"optimizer-{way}"
    ]
    return max(gains, default=None)


@dataclass
class _Own:
    """Of a group: what the script asked for, and where its parameters lay when that was seen."""

    group: dict[str, Any] = field(compare=False)
    asked: dict[str, Any]
    places: list[int]


class Switched:
    """Knows what groups were before. `may_be` says of a group whether it may be switched at all;
    `can_be_fused`, in each step, whether it can be to the fused form. Else it is to the one for
    lists of tensors, where gradients are of these `types`. `beside` is a fix that takes steps of
    such groups, unless it leaves them.
    """

    def __init__(
        self, situation: Situation, name: str, may_be: IsOpen, can_be_fused: IsFit | None = None,
        types: tuple[torch.dtype, ...] | None = None, beside: str | None = None,
    ) -> None:  # fmt: skip
        self._situation, self._name, self._types = situation, name, types
        self._may_be, self._can_be_fused = may_be, can_be_fused
        self._where = f" where {beside} leaves it" if beside else ""
        # Of each group, by its identity.
        self._own: weakref.WeakKeyDictionary[Any, dict[int, _Own]] = weakref.WeakKeyDictionary()
        self._refused: weakref.WeakKeyDictionary[Any, dict[int, _Own]] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Of any optimizer."""
        if self._name in self._situation.failures or torch.compiler.is_compiling():
            return
        if not type(optimizer).__module__.startswith("torch.optim."):
            return
        try:
            for group in optimizer.param_groups:
                self._switch(optimizer, group)
            self._forget_others(optimizer)
        except Exception as error:
            self._put_back(optimizer)
            self._situation.give_up(self._name, error)

    def put_back(self) -> None:
        """All of them, as they were."""
        for optimizer in list(self._own):
            self._put_back(optimizer)

    def wrap_state_dict(self, original: Any) -> Any:
        """What is saved is as written."""

        def state_dict(optimizer: Any) -> Any:
            saved = original(optimizer)
            own = self._own.get(optimizer)
            if not own:
                return saved
            try:
                return self._as_written(optimizer, saved, own)
            except Exception as error:
                self._put_back(optimizer)
                self._situation.give_up(self._name, error)
                return original(optimizer)

        return state_dict

    def wrap_load(self, original: Any) -> Any:
        """States are others then."""

        def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._known.pop(optimizer, None)
            return original(optimizer, *args, **kwargs)

        return load_state_dict

    def _switch(self, optimizer: Any, group: dict[str, Any]) -> None:
        owns = self._own.setdefault(optimizer, {})
        self._known.setdefault(optimizer, {})
        asked = _asked(group)
        fused, foreach = _way(group, "fused"), _way(group, "foreach")
        # Parameters that come to share memory, or to be others, are looked at again.
        places = [_place(parameter) for parameter in group["params"]]
        own = owns.get(id(group))
        if own is None or asked not in (own.asked, fused, foreach) or own.places != places:
            if own is not None and asked in (fused, foreach):
                group.update(own.asked)
                asked = own.asked
            own = _Own(group, asked, places)
            owns.pop(id(group), None)
            refused = self._refused.setdefault(optimizer, {})
            if refused.get(id(group)) == own:
                return
            if not self._may_be(optimizer, group):
                refused[id(group)] = own
                line = f"{type(optimizer).__name__}: as written"
                self._situation.note(self._name, line, left=True)
                return
            refused.pop(id(group), None)
            owns[id(group)] = own
        wanted = own.asked
        if _has_numbers_alone(group) and self._are_usual(p.grad for p in group["params"]):
            known = self._known[optimizer]
            if self._can_be_fused is not None and self._can_be_fused(optimizer, group, known):
                wanted = fused
            elif wanted["foreach"] is None and not adds_to_gradients(group):
                wanted = foreach
        if asked == wanted:
            return
        group.update(wanted)
        if wanted is fused:
            _count_on_devices(optimizer, group)
        ways = [f"{name}=True" for name in _CHOICES if wanted.get(name)] or ["as written"]
        self._situation.note(self._name, f"{type(optimizer).__name__}: {ways[0]}{self._where}")

    def _forget_others(self, optimizer: Any) -> None:
        """Groups that the script has taken out."""
        known = (self._own[optimizer], self._refused.get(optimizer, {}))
        if sum(map(len, known)) == len(optimizer.param_groups):
            return  # as nearly always
        here = {id(group) for group in optimizer.param_groups}
        for entries in known:
            for number in [number for number in entries if number not in here]:
                del entries[number]

    def _are_usual(self, gradients: Iterable[torch.Tensor | None]) -> bool:
        return all(
            gradient is None
            or (
                gradient.layout is torch.strided
                and (self._types is None or gradient.dtype in self._types)
            )
            for gradient in gradients
        )

    def _put_back(self, optimizer: Any) -> None:
        for own in self._own.pop(optimizer, {}).values():
            own.group.update(own.asked)
            for parameter in own.group["params"]:
                state = optimizer.state.get(parameter, {})
                state.update(self._host_counts(state))

    def _as_written(
        self, optimizer: Any, saved: dict[str, Any], own: dict[int, _Own]
    ) -> dict[str, Any]:
        ours = [own.get(id(group)) for group in optimizer.param_groups]
        groups, state = [], dict(saved["state"])
        for group, entry in zip(saved["param_groups"], ours, strict=True):
            groups.append(group if entry is None else {**group, **entry.asked})
            for key in group["params"] if entry is not None else ():
                moved = self._host_counts(state.get(key, {}))
                if moved:
                    state[key] = {**state[key], **moved}
        return {**saved, "state": state, "param_groups": groups}

    def _host_counts(self, state: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The step's count where torch has it without the fused form, if it is elsewhere."""
        step = state.get("step")
        if self._can_be_fused is None or not isinstance(step, torch.Tensor):
            return {}
        is_double = torch.get_default_dtype() == torch.float64
        dtype = torch.float64 if is_double else torch.float32
        if step.device.type == "cpu" and step.dtype == dtype:
            return {}
        return {"step": step.to(device="cpu", dtype=dtype)}


def _asked(group: dict[str, Any]) -> dict[str, Any]:
    return {name: group[name] for name in _CHOICES if name in group}


def _way(group: dict[str, Any], way: str) -> dict[str, Any]:
    return {name: True if name == way else None for name in _CHOICES if name in group}


def _place(parameter: torch.Tensor) -> int:
    return parameter.data_ptr() if _is_plain(parameter) else 0


def _is_plain(parameter: torch.Tensor) -> bool:
    """Whether it lies in memory as tensors usually do."""
    return (
        type(parameter) in (torch.nn.Parameter, torch.Tensor) and parameter.layout is torch.strided
    )


def is_open(group: dict[str, Any], devices: tuple[str, ...]) -> bool:
    """Whether the script left it open, or asked for a loop, and nothing else stands against it."""
    return (
        "foreach" in group
        and not group["foreach"]
        and group.get("fused") is None
        and not group.get("capturable")
        and not group.get("differentiable")
        and _has_numbers_alone(group)
        and all(
            _is_plain(parameter) and parameter.device.type in devices
            for parameter in group["params"]
        )
    )


def _has_numbers_alone(group: dict[str, Any]) -> bool:
    """Lists of tensors take no tensors as rates."""
    betas = group.get("betas", ())
    return not any(isinstance(value, torch.Tensor) for value in (*group.values(), *betas))


def _count_on_devices(optimizer: Any, group: dict[str, Any]) -> None:
    for parameter in group["params"]:
        state = optimizer.state.get(parameter, {})
        if isinstance(state.get("step"), torch.Tensor):
            state["step"] = state["step"].to(device=parameter.device, dtype=torch.float32)
