"""Times the transforms of a dataset, one by one, and finds out what each of them does."""

import pickle
import random
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from slipstream.doctor.record.places import place_of_callable
from slipstream.doctor.record.stages import StageLog
from slipstream.patches import Patches

_PROBED = 6  # calls of a transform that are looked at closely
_INNER = ("dataset", "datasets", "base", "data", "ds", "source", "inner")
# Called by a dataset, but no transform: its samples' reader, its random numbers.
_NO_TRANSFORM = ("loader", "rng", "generator", "collate_fn", "sampler")
_DEEPEST = 4
_MOST_MEMBERS = 64
_MOST_ATTRIBUTES = 200

Place = tuple[Any, str, int | None, Any]  # who holds it, in which attribute, at which index, it


def transforms_of(root: Any) -> list[Place]:
    """The transforms that a dataset holds, in the order in which they are held."""
    return [place for place in _walk(root, 0, set()) if stage_of(place[3])]


def stage_of(transform: Any) -> str | None:
    """What its time is noted as; None for what cannot be timed."""
    if isinstance(transform, (FunctionType, MethodType)):
        name = transform.__qualname__.replace("<locals>.", "").split(".")[-1]
        return f"transform: {name}"
    kind = type(transform)
    if kind.__module__ == "builtins" or kind.__module__.startswith(("torch.nn", "functools")):
        return None
    return f"transform: {kind.__name__}"


def _walk(thing: Any, depth: int, seen: set[int]) -> Iterator[Place]:
    if depth > _DEEPEST or id(thing) in seen or isinstance(thing, (str, bytes, int, torch.Tensor)):
        return
    seen.add(id(thing))
    if isinstance(thing, (list, tuple)):
        for part in thing[:_MOST_MEMBERS]:
            if hasattr(part, "__dict__"):  # datasets; not the rows of a table
                yield from _walk(part, depth + 1, seen)
        return
    values = getattr(thing, "__dict__", None)
    if not isinstance(values, dict) or len(values) > _MOST_ATTRIBUTES:
        return
    for name, value in list(values.items()):
        if name.startswith("__") or name in _NO_TRANSFORM:
            continue
        if name in _INNER and not callable(value):
            yield from _walk(value, depth + 1, seen)
        elif _is_list_of_callables(value):
            for number, member in enumerate(value):
                yield from _callable(thing, name, number, member, depth, seen)
        elif _is_transform(value):
            yield from _callable(thing, name, None, value, depth, seen)


def _callable(
    owner: Any, name: str, number: int | None, value: Any, depth: int, seen: set[int]
) -> Iterator[Place]:
    """A transform, or the ones that it is made of."""
    inner = [] if isinstance(value, FunctionType) else list(_walk(value, depth + 1, seen))
    if inner:
        yield from inner
    else:
        yield owner, name, number, value


def _is_list_of_callables(value: Any) -> bool:
    return (
        type(value) in (list, tuple)
        and 0 < len(value) <= _MOST_MEMBERS
        and all(_is_transform(member) for member in value)
    )


def _is_transform(value: Any) -> bool:
    if not callable(value) or isinstance(value, (type, BuiltinFunctionType)):
        return False
    return not (isinstance(value, torch.nn.Module) and any(True for _ in value.parameters()))


def time_classes(root: Any, log: StageLog, patches: Patches, done: set[str]) -> list[str]:
    """Time transforms that are objects, by their classes; nothing of the dataset is changed, and
    it can be pickled as before. Returns the names of all.
    """
    names = []
    for _, _, _, transform in transforms_of(root):
        stage = stage_of(transform)
        assert stage is not None
        names.append(stage.removeprefix("transform: "))
        kind = type(transform)
        key = f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(transform, (FunctionType, MethodType)) or key in done:
            continue
        done.add(key)
        where = place_of_callable(transform)
        # A module's __call__ is that of all modules; what a transform does is its forward.
        method = "forward" if isinstance(transform, torch.nn.Module) else "__call__"
        patches.replace(kind, method, _timed_method(stage, log, where))
    return names


def time_functions(root: Any, log: StageLog, patches: Patches) -> None:
    """Time transforms that are functions, where they are held: only in a process that reads."""
    for owner, name, number, transform in transforms_of(root):
        if not isinstance(transform, (FunctionType, MethodType)):
            continue
        if hasattr(transform, "_slipstream_timed"):
            continue
        stage = stage_of(transform)
        assert stage is not None
        timed = _timed_function(stage, log, transform)
        if number is None:
            patches.replace(owner, name, _always(timed))
        else:
            patches.replace(owner, name, _with_member(number, timed), disguised=False)


def _always(replacement: Any) -> Callable[[Any], Any]:
    return lambda _: replacement


def _with_member(number: int, member: Any) -> Callable[[Any], Any]:
    def replaced(members: Any) -> Any:
        changed = [*members]
        changed[number] = member
        return type(members)(changed)

    return replaced


def _timed_function(stage: str, log: StageLog, function: Any) -> Any:
    facts = log.transforms.setdefault(stage, {"where": place_of_callable(function)})

    def timed(*args: Any, **kwargs: Any) -> Any:
        if facts.get("calls", 0) < _PROBED and args and log.is_on:
            return _probe(stage, log, facts, function, args, kwargs)
        return log.call(stage, function, *args, **kwargs)

    timed._slipstream_timed = True  # type: ignore[attr-defined]
    return timed


def _timed_method(stage: str, log: StageLog, where: str | None) -> Callable[[Any], Any]:
    facts = log.transforms.setdefault(stage, {"where": where})

    def wrap(method: Any) -> Any:
        def timed(transform: Any, *args: Any, **kwargs: Any) -> Any:
            if facts.get("calls", 0) < _PROBED and args and log.is_on:
                facts.setdefault("random", _holds_generator(transform))
                return _probe(stage, log, facts, method, (transform, *args), kwargs)
            return log.call(stage, method, transform, *args, **kwargs)

        return timed

    return wrap


def _probe(
    stage: str, log: StageLog, facts: dict[str, Any], function: Any,
    args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """A call that is looked at closely: does it draw random numbers, what goes in, what comes out.

    The time of looking is that of no stage.
    """
    facts["calls"] = facts.get("calls", 0) + 1
    before = log.call("", _random_states)
    result = log.call(stage, function, *args, **kwargs)
    after = log.call("", _random_states)
    facts["random"] = bool(facts.get("random")) or before != after
    facts["in"], facts["out"] = describe_sample(args[-1]), describe_sample(result)
    return result


def _random_states() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    drawn = None
    if numpy is not None:
        drawn = pickle.dumps(numpy.random.get_state(legacy=False))
    return random.getstate(), torch.get_rng_state().numpy().tobytes(), drawn


def _holds_generator(transform: Any) -> bool:
    values = getattr(transform, "__dict__", {}).values()
    return any(type(value).__name__ in ("Generator", "Random", "RandomState") for value in values)


def describe_sample(value: Any) -> list[Any] | None:
    """[kind, elements of the plane] of a picture, an array or a tensor."""
    if isinstance(value, (tuple, list)) and value:
        return describe_sample(value[0])
    size = getattr(value, "size", None)
    if isinstance(size, tuple) and len(size) == 2 and hasattr(value, "mode"):
        return ["picture", size[0] * size[1]]
    shape = getattr(value, "shape", None)
    if shape is None:
        return [type(value).__name__, 0]
    sides = sorted(int(side) for side in shape)[-2:]
    plane = 1
    for side in sides:
        plane *= side
    return [str(value.dtype).removeprefix("torch."), plane]
