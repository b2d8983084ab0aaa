"""Puts functions in the place of others wherever these are held by now."""

import functools
import gc
import os
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

# The system's own modules, which stay as they are: what imports modules looks there.
_PUBLIC = {"posix": "os", "_io": "io"}
# Classes that took functions when they were made: module, class.
_CLASSES = (
    ("pathlib", "_NormalAccessor"),  # of Python 3.10
    ("glob", "_Globber"),
    ("glob", "_StringGlobber"),
)
_ABILITIES = (
    os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids,
)  # fmt: skip


class _NoMethod:
    """Functions of C are no methods of the classes that hold them; those in their place must not
    become any.
    """

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined, no-any-return]


def replace_all(wrapped: dict[Any, Any]) -> None:
    """`wrapped` has the new functions by those that they stand for, to the end of the process."""
    wrapped = {
        original: _NoMethod(new) if isinstance(original, BuiltinFunctionType) else new
        for original, new in wrapped.items()
    }
    for original, new in wrapped.items():
        if not isinstance(original, type):
            functools.update_wrapper(new, original)
            # Pickle finds it there.
            new.__module__ = _PUBLIC.get(new.__module__, new.__module__)
        for able in _ABILITIES:
            if original in able:
                able.add(new)
    # By identity: modules hold things that cannot be compared, or hashed.
    by_id = {id(original): new for original, new in wrapped.items()}
    for module_name, module in list(sys.modules.items()):
        is_ours = module_name in _PUBLIC or module_name.partition(".")[0] == "slipstream"
        if is_ours or not isinstance(module, ModuleType):
            continue
        names = vars(module)
        for name, value in list(names.items()):
            if id(value) in by_id:
                names[name] = by_id[id(value)]
    for module_name, class_name in _CLASSES:
        holder = getattr(sys.modules.get(module_name), class_name, None)
        if holder is not None:
            _replace_in_class(holder, by_id)
    _replace_elsewhere(wrapped, by_id)


def _replace_in_class(holder: type, by_id: dict[int, Any]) -> None:
    for name, value in list(vars(holder).items()):
        function = value.__func__ if isinstance(value, staticmethod) else value
        if id(function) in by_id:
            new = by_id[id(function)]
            setattr(holder, name, staticmethod(new) if function is not value else new)


def _replace_elsewhere(wrapped: dict[Any, Any], by_id: dict[int, Any]) -> None:
    """In dictionaries, such as numpy's of functions that open files, and in functions' defaults."""
    known: list[Any] = list(sys.modules.values())
    modules = [each for each in known if isinstance(each, ModuleType)]
    # Modules are done; what stands in a function's place says so itself, for `inspect`.
    done = {id(vars(each)) for each in (*modules, *wrapped.values())}
    for holder in gc.get_referrers(*wrapped):
        if type(holder) is dict and {"__module__", "__doc__"} <= holder.keys():
            # Of classes: what they look up is kept by type.
            for kind in gc.get_referrers(holder):
                if isinstance(kind, type):
                    _replace_in_class(kind, by_id)
        elif type(holder) is dict and id(holder) not in done:
            for name, value in list(holder.items()):
                if id(value) in by_id:
                    holder[name] = by_id[id(value)]
        elif type(holder) is tuple:
            for function in gc.get_referrers(holder):
                if type(function) is FunctionType and function.__defaults__ is holder:
                    function.__defaults__ = tuple(by_id.get(id(one), one) for one in holder)
