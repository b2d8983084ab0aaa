"""Whole passes of a copied model: with other switches, types, layouts and threads."""

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from slipstream.cpu import usable_cores
from slipstream.doctor.record.models import mode_name
from slipstream.doctor.record.replay_anomaly import StackOfDepth
from slipstream.doctor.record.replay_device import on_device
from slipstream.doctor.record.room import is_there_room
from slipstream.doctor.record.stopwatch import Stopwatch, Work

if TYPE_CHECKING:
    from slipstream.doctor.record.loop import LoopHooks

_SMALL_BATCH = 2
_SECONDS_OF_SUSPECTS, _SECONDS_OF_VARIANTS = 2.0, 0.8
_Entry = tuple[str, Work, Work, dict[str, Any]]


def replay_suspects(hooks: "LoopHooks", watch: Stopwatch) -> list[dict[str, Any]]:
    """Of what is known to be on, or to be done for nothing: what would it gain to stop it."""
    return _measured(_suspects(hooks), watch, _SECONDS_OF_SUSPECTS)


def replay_variants(hooks: "LoopHooks", watch: Stopwatch) -> list[dict[str, Any]]:
    """Of what could be done in another way: would that be faster."""
    return _measured(_all_variants(hooks), watch, _SECONDS_OF_VARIANTS)


def _measured(entries: Iterator[_Entry], watch: Stopwatch, seconds: float) -> list[dict[str, Any]]:
    found = []
    for name, now, then, facts in entries:
        times = watch.compare(now, then, seconds)
        if times is not None:
            found.append({"name": name, "now_ms": times[0], "then_ms": times[1], **facts})
    return found


def _suspects(hooks: "LoopHooks") -> Iterator[_Entry]:
    for number, module, facts in _copyable(hooks):
        given = hooks.models.given.get((number, mode_name(False, True)))
        if given is not None:
            yield _with_gradient(number, module, given)
            if _only_teaches(module, facts, hooks):
                yield _without_learning(number, module, given)
        trained = hooks.models.given.get((number, mode_name(True, True)))
        if trained is not None and facts.get("with_gradient"):
            yield from _trained(number, module, trained, hooks)
    yield from _copied_each_step(hooks)


def _all_variants(hooks: "LoopHooks") -> Iterator[_Entry]:
    for number, module, facts in _copyable(hooks):
        trained = hooks.models.given.get((number, mode_name(True, True)))
        evaluated = hooks.models.given.get((number, mode_name(False, False)))
        evaluated = evaluated or hooks.models.given.get((number, mode_name(False, True)))
        if trained is not None and facts.get("with_gradient"):
            model = copy.deepcopy(module).train()
            now = training_pass(model, trained)
            yield from _variants(model, now, trained, facts, {"model": number})
        elif evaluated is not None and not facts.get("with_gradient"):
            yield from _inferred(number, module, evaluated, hooks)


def _copyable(hooks: "LoopHooks") -> Iterator[tuple[int, Any, dict[str, Any]]]:
    for number, facts in enumerate(hooks.models.found):
        module = hooks.models.module(number)
        if module is not None and can_be_copied(facts, module):
            yield number, module, facts


def _copied_each_step(hooks: "LoopHooks") -> Iterator[_Entry]:
    """nn.DataParallel, against what each of its devices computes of a step."""
    for number, facts in enumerate(hooks.models.found):
        module = hooks.models.module(number)
        given = hooks.models.given.get((number, mode_name(True, True)))
        if type(module) is not torch.nn.DataParallel or not module.device_ids or given is None:
            continue
        if is_there_room(facts["elements"], "cuda"):
            spread = copy.deepcopy(module).train()
            own = training_pass(spread.module, _share_of(given, len(set(module.device_ids))))
            yield "data-parallel", training_pass(spread, given), own, {"model": number}


def _share_of(given: Any, devices: int) -> Any:
    batch = next((t.shape[0] for t in tree_leaves(given) if _has_rows(t)), 0)
    return _as(given, lambda tensor: _first_rows(tensor, batch, -(-batch // devices)))


def can_be_copied(facts: dict[str, Any], module: Any) -> bool:
    """Whether a copy of the model would do the same, and fits beside it."""
    return (
        facts["elements"] > 0
        and is_there_room(facts["elements"], next(iter(module.parameters())).device.type)
        and not facts["compiled"]
        and not facts["is_distributed"]
        and "OptimizedModule" not in facts["kinds"]
    )


def _with_gradient(number: int, module: Any, given: Any) -> _Entry:
    model = copy.deepcopy(module).eval()
    args, kwargs = given

    def now() -> object:
        return model(*args, **kwargs)

    def then() -> object:
        with torch.inference_mode():
            return model(*args, **kwargs)

    return "inference-mode", now, then, {"model": number}


def _only_teaches(module: Any, facts: dict[str, Any], hooks: "LoopHooks") -> bool:
    """Whether it is always in evaluation, gets gradients, and no optimizer has any of it. Where an
    input learns, its gradients go on to that.
    """
    mode = mode_name(False, True)
    is_evaluated = set(facts["modes"]) == {mode} and not facts["modes"][mode]["input_learns"]
    learns = {name for name, p in module.named_parameters() if p.requires_grad}
    return bool(
        is_evaluated and facts.get("with_gradient") and _not_in_optimizers(module, hooks) == learns
    )


def _without_learning(number: int, module: Any, given: Any) -> _Entry:
    model = copy.deepcopy(module).eval()
    args, kwargs = given

    def then() -> object:
        with torch.no_grad():
            return model(*args, **kwargs)

    return "only-teaches", training_pass(model, given), then, {"model": number}


def _trained(number: int, module: Any, given: Any, hooks: "LoopHooks") -> Iterator[_Entry]:
    facts = hooks.models.found[number]
    about = {"model": number}
    now = training_pass(copy.deepcopy(module).train(), given)
    if hooks.has_workers and next(module.parameters()).device.type == "cpu":
        yield "alone", now, now, about
    if facts["modes"][mode_name(True, True)]["anomaly"]:
        yield from _on_a_stack(number, copy.deepcopy(module).train(), given, hooks)
    if any(call.what == "zero_grad(set_to_none=False)" for call in hooks.calls):
        yield (
            "add-to-zeros",
            training_pass(copy.deepcopy(module).train(), given, keep=True),
            now,
            about,
        )
    if any(call.what == "torch.cuda.empty_cache" for call in hooks.calls):
        yield "empty-cache", _emptied(now), now, about
    unasked = _unasked(module, hooks)
    if unasked:
        frozen = copy.deepcopy(module).train()
        for name, parameter in frozen.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and name not in unasked)
        facts["unasked"] = len(unasked)
        yield "frozen", now, training_pass(frozen, given), about


def _on_a_stack(number: int, model: Any, given: Any, hooks: "LoopHooks") -> Iterator[_Entry]:
    """Anomaly detection, on and off, with a stack as deep as the script's."""
    depth = hooks.models.depths.get((number, mode_name(True, True)), 1)
    stack = StackOfDepth(model, given, depth, hooks.models.autocast_dtype)
    try:
        yield "anomaly", stack.with_anomaly(True), stack.with_anomaly(False), {"model": number}
    finally:
        stack.close()


def _inferred(number: int, module: Any, given: Any, hooks: "LoopHooks") -> Iterator[_Entry]:
    about = {"model": number}
    model = copy.deepcopy(module).eval()
    args, kwargs = given

    def now() -> object:
        with torch.inference_mode():
            return model(*args, **kwargs)

    inside = hooks.models.insides.get(number)
    if inside is not None and inside.folds:
        folded = fold(copy.deepcopy(module).eval(), inside.folds)

        def then() -> object:
            with torch.inference_mode():
                return folded(*args, **kwargs)

        yield "folded", now, then, {**about, "folds": len(inside.folds)}
    yield from _variants(model, now, given, hooks.models.found[number], about)


def _variants(
    model: Any, now: Work, given: Any, facts: dict[str, Any], about: dict[str, Any]
) -> Iterator[_Entry]:
    """Of training and of inference."""
    in_training = model.training
    if "float64" in facts["dtypes"]:
        single = copy.deepcopy(model).float()
        yield "float32", now, _like(single, _as(given, _to_float), in_training), about
    first = next(iter(model.parameters()))
    threads, cores = torch.get_num_threads(), usable_cores()
    if threads != cores and first.device.type == "cpu":
        yield "threads", _on(now, threads), _on(now, cores), {**about, "threads": [threads, cores]}
    if torch.are_deterministic_algorithms_enabled():
        yield "deterministic", _fixed(now, True), _fixed(now, False), about
    batch = next((t.shape[0] for t in tree_leaves(given) if _has_rows(t)), 0)
    if first.device.type == "cuda":

        def like(rows: int) -> Work:
            return _like(model, _as(given, lambda t: _first_rows(t, batch, rows)), in_training)

        yield from on_device(now, like, facts, about, batch)
    if first.device.type == "cuda" or 0 < batch <= _SMALL_BATCH:
        double = _as(given, lambda tensor: torch.cat([tensor, tensor]) if tensor.ndim else tensor)
        yield "double-batch", now, _like(model, double, in_training), {**about, "batch": batch}
    has_images = any(isinstance(t, torch.Tensor) and t.ndim == 4 for t in tree_leaves(given))
    if facts["convolutions"] and has_images:
        if not facts["channels_last_weights"]:
            last = copy.deepcopy(model).to(memory_format=torch.channels_last)
            yield "channels-last", now, _like(last, _as(given, _to_last), in_training), about
        else:
            plain = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
            yield "contiguous", now, _like(plain, _as(given, _to_plain), in_training), about
            yield "channels-last", now, _like(model, _as(given, _to_last), in_training), about


def _first_rows(tensor: torch.Tensor, batch: int, rows: int) -> torch.Tensor:
    return tensor[:rows] if _has_rows(tensor) and tensor.shape[0] == batch else tensor


def _has_rows(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0


def training_pass(model: Any, given: Any, *, keep: bool = False) -> Work:
    """A forward and a backward pass. `keep`: gradients are filled with zeros between them."""
    args, kwargs = given

    def run() -> None:
        result = model(*args, **kwargs)
        outputs = [
            leaf
            for leaf in tree_leaves(result)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        total = torch.stack([leaf.sum().to(torch.float64).real for leaf in outputs]).sum()
        is_cast = torch.is_autocast_enabled("cuda")
        # Autocast is for the forward pass: the products of a backward pass under it lose bits too.
        with torch.autocast("cuda", enabled=False) if is_cast else nullcontext():
            total.backward()  # type: ignore[no-untyped-call]

    def run_from_none() -> None:
        model.zero_grad()
        run()

    return run if keep else run_from_none


def _like(model: Any, given: Any, in_training: bool) -> Work:
    if in_training:
        return training_pass(model, given)
    args, kwargs = given

    def run() -> object:
        with torch.inference_mode():
            return model(*args, **kwargs)

    return run


def _emptied(work: Work) -> Work:
    def run() -> object:
        result = work()
        torch.cuda.empty_cache()
        return result

    return run


def _on(work: Work, threads: int) -> Work:
    def run() -> object:
        torch.set_num_threads(threads)
        return work()

    return run


def _fixed(work: Work, deterministic: bool) -> Work:
    def run() -> object:
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        return work()

    return run


def _as(given: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return tree_map(
        lambda value: change(value) if isinstance(value, torch.Tensor) else value, given
    )


def _to_float(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _to_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def _to_plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous()


def _unasked(module: Any, hooks: "LoopHooks") -> set[str]:
    """Parameters that get gradients, and that no optimizer changes."""
    unasked = _not_in_optimizers(module, hooks)
    # A model of which an optimizer has nothing at all may be another's copy or a critic.
    return unasked if len(unasked) < sum(p.requires_grad for p in module.parameters()) else set()


def _not_in_optimizers(module: Any, hooks: "LoopHooks") -> set[str]:
    asked = {
        id(p) for o in hooks.held_optimizers.values() for g in o.param_groups for p in g["params"]
    }
    return {n for n, p in module.named_parameters() if p.requires_grad and id(p) not in asked}


def fold(model: Any, pairs: list[tuple[str, str]]) -> Any:
    """Batch norms of an evaluated model, folded into the convolutions before them."""
    for conv_name, norm_name in pairs:
        conv, norm = model.get_submodule(conv_name), model.get_submodule(norm_name)
        _put(model, conv_name, torch.nn.utils.fusion.fuse_conv_bn_eval(conv, norm))
        _put(model, norm_name, torch.nn.Identity())
    return model


def _put(model: Any, name: str, part: Any) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, part)
