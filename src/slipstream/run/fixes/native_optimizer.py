"""`native-optimizer`: on a processor, a group of parameters is updated in one native call.

torch makes five to ten calls for each parameter, each of some microseconds: to a small model that
is a part of its step. Rounded is what torch rounds, where it does so, which is compared before with
torch's own steps, and once for each way in the script. What torch's optimizers do around that
(states, hooks, schedulers) stays theirs.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.updating import arithmetic, group
from slipstream.words import count_of

NAME = "native-optimizer"
_NAMES = ("SGD", "Adam", "AdamW")
_FLUSHED = "numbers that are nearly zero are flushed (torch.set_flush_denormal)"


def applies(situation: Situation) -> tuple[bool, str]:
    """For optimizers of few elements, on a processor, that work in their default way."""
    found = [entry for entry in situation.capture.optimizers if can_be_native(entry)]
    if not found:
        names = {entry["class"] for entry in situation.capture.optimizers if entry["is_torchs"]}
        if not names & {*_NAMES}:
            return False, "no SGD, Adam or AdamW of torch's was seen"
        return False, "it is for few enough parameters, in float32, on a processor"
    if arithmetic.is_fused() is None:
        return False, "this torch rounds in another way"
    if not arithmetic.keeps_denormals():
        return False, _FLUSHED
    return True, f"{found[0]['class']} has {count_of(found[0]['parameters'], 'parameter')}"


def can_be_native(entry: dict[str, Any]) -> bool:
    """Of what was seen of an optimizer."""
    return bool(
        entry["class"] in _NAMES
        and entry["is_torchs"]
        and not entry["fused"]
        and not entry.get("capturable")
        and entry.get("device") == "cpu"
        and set(entry.get("types", ())) == {"float32"}
        and entry.get("elements", 0) <= group.MOST_ELEMENTS
    )


def apply(situation: Situation) -> Undo:
    """To what torch's optimizers call."""
    is_fused = arithmetic.is_fused()
    if is_fused is None or not arithmetic.keeps_denormals():
        return lambda: None
    native = _Native(situation, is_fused=is_fused)
    patches = Patches()
    patches.replace(import_module("torch.optim.adam"), "adam", native.wrap_adam)
    patches.replace(import_module("torch.optim.adamw"), "adamw", native.wrap_adamw)
    patches.replace(import_module("torch.optim.sgd"), "sgd", native.wrap_sgd)
    patches.replace(torch, "set_flush_denormal", native.wrap_flushing)
    return patches.undo


Lists = tuple[Any, ...]
Step = Callable[[Lists, Any], bool]  # of a native group
Rates = dict[str, Any]
# What tensors and numbers may raise when they are looked at. Others are the script's own, such as
# those of its signals, and pass.
_SURPRISES = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


class _Native:
    def __init__(self, situation: Situation, *, is_fused: bool) -> None:
        self._situation, self._is_fused = situation, is_fused
        self._proved: set[tuple[Any, ...]] = set()
        self._is_off = False
        self._scratch = group.Scratch()

    def wrap_adam(self, original: Any) -> Any:
        """What Adam calls with the tensors of a group; AdamW, too, in newer versions."""
        return self._wrap_adams(original, is_decoupled=False)

    def wrap_adamw(self, original: Any) -> Any:
        """The same of older versions."""
        return self._wrap_adams(original, is_decoupled=True)

    def _wrap_adams(self, original: Any, *, is_decoupled: bool) -> Any:
        # Names as torch has them: some call it with these.
        def adam(
            params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, max_exp_avg_sqs: Any,
            state_steps: Any, *more: Any, **how: Any,
        ) -> Any:  # fmt: skip
            lists = params, grads, exp_avgs, exp_avg_sqs, state_steps
            decoupled = bool(how.get("decoupled_weight_decay", is_decoupled))
            done = False
            if not more and _is_usual(how, group.ADAM) and not how.get("amsgrad"):
                rates = {name: how[name] for name in group.ADAM}

                def step(own: Lists, native: Any) -> bool:
                    return group.adam(
                        own, native, self._scratch, rates, is_fused=self._is_fused,
                        is_decoupled=decoupled,
                    )  # fmt: skip

                name = "AdamW" if decoupled else "Adam"
                done = self._does(
                    step, lambda own: original(*own[:4], [], own[4], **how), lists, rates,
                    (name, rates["weight_decay"] != 0, _is_far(rates["beta1"])),
                )  # fmt: skip
            if not done:
                original(*lists[:4], max_exp_avg_sqs, state_steps, *more, **how)

        return adam

    def wrap_sgd(self, original: Any) -> Any:
        """What SGD calls."""

        def sgd(
            params: Any, d_p_list: Any, momentum_buffer_list: Any, *more: Any, **how: Any
        ) -> Any:
            done = False
            if (
                not more
                and _is_usual(how, (*group.SGD, "nesterov"))
                and not how.get("has_sparse_grad")
                and not _adds_to_gradients(how)
                and not _is_little(params, how)
            ):
                rates = {name: how[name] for name in group.SGD}
                is_nesterov = bool(how["nesterov"])
                # Momentum begins as the gradient, which torch sees to.
                lists = params, d_p_list, momentum_buffer_list if rates["momentum"] else ()

                def step(own: Lists, native: Any) -> bool:
                    return group.sgd(
                        own, native, rates, is_fused=self._is_fused, is_nesterov=is_nesterov
                    )

                done = self._does(
                    step, lambda own: original(*own[:2], own[2] or [None] * len(own[0]), **how),
                    lists, rates,
                    ("SGD", rates["momentum"] != 0, rates["weight_decay"] != 0, is_nesterov),
                )  # fmt: skip
            if not done:
                original(params, d_p_list, momentum_buffer_list, *more, **how)

        return sgd

    def wrap_flushing(self, original: Any) -> Any:
        """What is flushed depends on the threads that work, which are others here."""

        def set_flush_denormal(*args: Any, **kwargs: Any) -> Any:
            self._is_off = True
            self._situation.note(NAME, f"left alone: {_FLUSHED}", left=True)
            return original(*args, **kwargs)

        return set_flush_denormal

    def _does(
        self, step: Step, original: Any, lists: Lists, rates: Rates, way: tuple[Any, ...]
    ) -> bool:
        """Whether the step was made here."""
        if self._is_off or NAME in self._situation.failures:
            return False
        try:
            if not (group.is_bare() and group.are_usual(rates) and group.are_plain(lists)):
                return False
            native = self._scratch.native(lists)
            if native is None or (
                way not in self._proved and not self._prove(step, original, lists, way)
            ):
                return False
        except _SURPRISES as error:
            self._situation.give_up(NAME, error)
            return False
        return step(lists, native)

    def _prove(self, step: Step, original: Any, lists: Lists, way: tuple[Any, ...]) -> bool:
        """The first step of its kind, on copies."""
        ours, theirs = (_copies(lists) for _ in range(2))
        if not step(ours, self._scratch.native(ours)):
            return False
        original(theirs)
        if not all(map(_are_equal, ours, theirs)):
            raise ArithmeticError(f"{way[0]} of this torch rounds in another way")
        self._proved.add(way)
        self._situation.note(NAME, f"{way[0]}: a group of parameters in one call")
        return True


def _is_usual(how: dict[str, Any], names: Sequence[str]) -> bool:
    """Of what torch's functions can be told; with all `names`."""
    return (
        not any(how.get(name) for name in _OTHERWISE)
        and all(how.get(name) is None for name in ("grad_scale", "found_inf"))
        and all(name in how for name in names)
    )


_OTHERWISE = ("fused", "capturable", "differentiable", "has_complex", "maximize")


def _adds_to_gradients(how: dict[str, Any]) -> bool:
    """As lists of tensors do with Nesterov's momentum where nothing decays."""
    return bool(how.get("foreach") and how["nesterov"] and how["weight_decay"] == 0)


def _is_little(params: Any, how: dict[str, Any]) -> bool:
    """Where torch makes one call for each of a few parameters, there is nothing to gain."""
    is_one = how["momentum"] == 0 and how["weight_decay"] == 0
    return is_one and isinstance(params, list) and len(params) < _FEW


_FEW = 16


def _is_far(beta1: Any) -> bool:
    """Whether torch takes the mean from the gradient's end, which is the nearer one."""
    return isinstance(beta1, (int, float)) and beta1 <= 0.5


def _copies(lists: Lists) -> Lists:
    return tuple([tensor.detach().clone() for tensor in tensors] for tensors in lists)


def _are_equal(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    pairs = zip(ones, others, strict=True)
    return all(torch.equal(one.view(torch.int32), other.view(torch.int32)) for one, other in pairs)


FIX = Fix(
    NAME, "E", "a group of parameters is updated in one native call", (), applies, apply
)  # fmt: skip
