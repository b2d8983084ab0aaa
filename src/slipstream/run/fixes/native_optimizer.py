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


def applies(situation: Situation) -> tuple[bool, str]:
    """For optimizers of few elements, on a processor, that work in their default way."""
    found = [entry for entry in situation.capture.optimizers if can_be_native(entry)]
    if not found:
        return False, "no SGD, Adam or AdamW with few enough parameters in float32 on a processor"
    if arithmetic.is_fused() is None:
        return False, "this torch rounds in another way"
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
    if is_fused is None:
        return lambda: None
    native = _Native(situation, is_fused=is_fused)
    patches = Patches()
    patches.replace(import_module("torch.optim.adam"), "adam", native.wrap_adam)
    patches.replace(import_module("torch.optim.adamw"), "adamw", native.wrap_adamw)
    patches.replace(import_module("torch.optim.sgd"), "sgd", native.wrap_sgd)
    return patches.undo


Lists = tuple[Sequence[Any], ...]
Step = Callable[[Lists], bool]  # false: nothing was done


class _Native:
    def __init__(self, situation: Situation, *, is_fused: bool) -> None:
        self._situation, self._is_fused = situation, is_fused
        self._proved: set[tuple[Any, ...]] = set()
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
            decoupled = how.get("decoupled_weight_decay", is_decoupled)
            if (
                torch.compiler.is_compiling()
                or more
                or not _is_usual(how)
                or how["amsgrad"]
                or not self._does(
                    lambda own: self._adam(own, how, is_decoupled=decoupled),
                    lambda own: original(*own[:4], [], own[4], **how),
                    lists,
                    ("Adam", decoupled, how["weight_decay"] != 0, how["beta1"] > _FROM_OTHER_END),
                )
            ):
                original(*lists[:4], max_exp_avg_sqs, state_steps, *more, **how)

        return adam

    def wrap_sgd(self, original: Any) -> Any:
        """What SGD calls."""

        def sgd(
            params: Any, d_p_list: Any, momentum_buffer_list: Any, *more: Any, **how: Any
        ) -> Any:
            # Momentum begins as the gradient, which torch sees to.
            lists = params, d_p_list, momentum_buffer_list if how.get("momentum") else ()
            if (
                torch.compiler.is_compiling()
                or more
                or not _is_usual(how)
                or how.get("has_sparse_grad")
                or not self._does(
                    lambda own: self._sgd(own, how),
                    lambda own: original(*own[:2], own[2] or [None] * len(own[0]), **how),
                    lists,
                    ("SGD", how["momentum"] != 0, how["weight_decay"] != 0, how["nesterov"]),
                )
            ):
                original(params, d_p_list, momentum_buffer_list, *more, **how)

        return sgd

    def _does(self, native: Step, original: Any, lists: Lists, way: tuple[Any, ...]) -> bool:
        """Whether the step was made here."""
        if NAME in self._situation.failures:
            return False
        try:
            if way in self._proved:
                return native(lists)
            return self._prove(native, original, lists, way)
        except Exception as error:
            self._situation.give_up(NAME, error)
            return False

    def _prove(self, native: Step, original: Any, lists: Lists, way: tuple[Any, ...]) -> bool:
        """The first step of its kind, on copies at first."""
        if not group.are_plain(lists):
            return False
        ours, theirs = (_copies(lists) for _ in range(2))
        if not native(ours):
            return False
        original(theirs)
        if not all(map(_are_equal, ours, theirs)):
            raise ArithmeticError(f"{way[0]} of this torch rounds in another way")
        if not native(lists):  # they share memory, which their copies do not
            return False
        self._proved.add(way)
        self._situation.note(NAME, f"{way[0]}: a group of parameters in one call")
        return True

    def _adam(self, lists: Lists, how: dict[str, Any], *, is_decoupled: bool) -> bool:
        rates = {name: how[name] for name in group.ADAM}
        return (
            _are_numbers(rates)
            and group.are_plain(lists)
            and group.adam(
                lists, self._scratch, rates, is_fused=self._is_fused, is_decoupled=is_decoupled
            )
        )

    def _sgd(self, lists: Lists, how: dict[str, Any]) -> bool:
        rates = {name: how[name] for name in group.SGD}
        return (
            _are_numbers(rates)
            and group.are_plain(lists)
            and group.sgd(lists, rates, is_fused=self._is_fused, is_nesterov=how["nesterov"])
        )


def _is_usual(how: dict[str, Any]) -> bool:
    """Of what torch's functions can be told."""
    return not any(how.get(name) for name in _OTHERWISE) and all(
        how.get(name) is None for name in ("grad_scale", "found_inf")
    )


_OTHERWISE = ("fused", "capturable", "differentiable", "has_complex", "maximize")
_FROM_OTHER_END = 0.5  # torch takes a mean from the nearer end


def _are_numbers(rates: dict[str, Any]) -> bool:
    """Not tensors, which torch allows as well."""
    return all(isinstance(rate, (int, float)) for rate in rates.values())


def _copies(lists: Lists) -> Lists:
    return tuple([tensor.detach().clone() for tensor in tensors] for tensors in lists)


def _are_equal(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    pairs = zip(ones, others, strict=True)
    return all(torch.equal(one.view(torch.int32), other.view(torch.int32)) for one, other in pairs)


FIX = Fix(
    NAME, "E", "a group of parameters is updated in one native call", (), applies, apply
)  # fmt: skip
