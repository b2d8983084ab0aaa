"""Whether a call of a model says something: a call that is made once more would say it twice."""

import inspect
import io
import logging
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from slipstream.doctor.record.places import is_users
from slipstream.run.loading.looks import content, is_users_module, names

_SAYS = {
    "add_histogram", "add_image", "add_scalar", "breakpoint", "critical", "debug", "exec", "info",
    "input", "logger", "logging", "open", "print", "stderr", "stdout", "subprocess", "system",
    "tqdm", "wandb", "warn", "warning", "warnings", "write", "writelines",
}  # fmt: skip
_PACKAGES = {
    "_warnings", "logging", "loguru", "structlog", "tensorboardX", "tqdm", "wandb", "warnings",
}  # fmt: skip


def says_something(module: torch.nn.Module) -> bool:
    """Whether code of the script that its forward pass may run names what prints, logs or writes.
    Code of installed packages is taken to say nothing.
    """
    parts = list(module.modules())
    waiting = [_function(vars(part).get("forward", type(part).forward)) for part in parts]
    owners = [*parts, *(value for part in parts for value in vars(part).values())]
    seen: set[FunctionType] = set()
    while waiting:
        function = waiting.pop()
        if function is None or function in seen or not is_users(function.__code__):
            continue
        seen.add(function)
        wanted = names(function.__code__)
        if wanted & _SAYS:
            return True
        found = [*_known_to(function, wanted), *_of_owners(owners, wanted)]
        if any(map(_is_voice, found)):
            return True
        waiting += [_function(value) for value in found]
    return False


def _known_to(function: FunctionType, wanted: frozenset[str]) -> Iterator[Any]:
    """What a function has from around it."""
    yield from map(content, function.__closure__ or ())
    for name in wanted & set(function.__globals__):
        value = function.__globals__[name]
        yield value
        if is_users_module(value):
            yield from (vars(value)[own] for own in wanted & set(vars(value)))
        if isinstance(value, type):
            yield from filter(_function, vars(value).values())
        elif not isinstance(value, ModuleType):
            yield from _of_owners([value], wanted | {"__call__"})


def _of_owners(owners: list[Any], wanted: frozenset[str]) -> Iterator[Any]:
    """What objects have by these names."""
    for owner in owners:
        for name in wanted:
            own = getattr(owner, "__dict__", {})
            yield own[name] if name in own else inspect.getattr_static(type(owner), name, None)


def _function(value: Any) -> FunctionType | None:
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, (MethodType, staticmethod, classmethod)):
        value = value.__func__
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def _is_voice(value: Any) -> bool:
    if isinstance(value, (io.IOBase, logging.Logger, logging.LoggerAdapter)) or value is print:
        return True
    if isinstance(value, ModuleType):
        where = value.__name__
    else:
        is_named = isinstance(value, (type, FunctionType, BuiltinFunctionType))
        where = (value.__module__ if is_named else type(value).__module__) or ""
    return where.partition(".")[0] in _PACKAGES or where.startswith("torch.utils.tensorboard")
