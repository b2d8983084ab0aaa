"""A user's model and its inputs, as they are typed: `package.module:make_model`, `8x3x224x224`."""

import importlib
import importlib.util
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slipstream.errors import UsageError

if TYPE_CHECKING:
    import torch

    from slipstream.infer.inputs import Inputs

_TARGET_FORMS = "Expected package.module:name or path/to/file.py:name"
_INPUT_FORMS = "Examples: 8x3x224x224, 8x3x224x224:float16, ids=1x128:int64:0..999"
_FLOATS = ("float32", "float16", "bfloat16", "float64")
_WHOLE = ("int64", "int32", "int16", "int8", "uint8", "bool")


def load_model(target: str) -> "torch.nn.Module":
    """The model that `package.module:name` or `path/to/file.py:name` leads to.

    The name is a module object, a class that is made without arguments, or a function that returns
    a module; it may have dots. The folder of the file, or the current one, is put in front of
    `sys.path`, as Python does for a script, and stays there: a model may import when it is called.
    """
    return _model_of(_load(target, "model"), target)


def load_function(target: str, what: str) -> Callable[..., Any]:
    """The function that such a name leads to; `what` it is for, in a message."""
    found = _load(target, what)
    if not callable(found):
        raise UsageError(f"{target} is {_kind(found)}; expected a function for the {what}.")
    made: Callable[..., Any] = found
    return made


def load_batches(target: str, device: str) -> list[Any]:
    """All batches of what such a name leads to, on the device: a list or a loader, or a function or
    a class that makes one.
    """
    from slipstream.infer.leaves import changed

    found = _load(target, "data")
    if isinstance(found, type) or (callable(found) and not hasattr(found, "__iter__")):
        found = _run(found, f"{target} failed")
    if not hasattr(found, "__iter__"):
        raise UsageError(f"{target} is {_kind(found)}; expected batches, or what makes them.")
    batches = _run(lambda: list(found), f"{target} failed")
    return [changed(batch, lambda tensor: tensor.to(device)) for batch in batches]


def _load(target: str, what: str) -> Any:
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise UsageError(f"{target!r} names no {what}. {_TARGET_FORMS}{_names_in_file(target)}.")
    module = _load_file(Path(place)) if _is_file(place) else _load_module(place)
    return _named(module, place, name)


def instead_of(inputs: Sequence[str], others: str) -> list[str]:
    """Arguments of another call: those that `others` has, with commas between them, by name or in
    order, take the place of the first call's.

    >>> instead_of(["8x3", "mask=8x3:bool"], "mask=1x3:bool,1x3")
    ['1x3', 'mask=1x3:bool']
    """
    given = [text.strip() for text in others.split(",")]
    named = {text.partition("=")[0].strip(): text for text in given if "=" in text}
    in_order = [text for text in given if "=" not in text]
    made = []
    for text in inputs:
        name = text.partition("=")[0].strip() if "=" in text else None
        if name is not None:
            made.append(named.pop(name, text))
        else:
            made.append(in_order.pop(0) if in_order else text)
    if named or in_order:
        left = ", ".join([*in_order, *named.values()])
        raise UsageError(f"--also {others}: {left} is no argument that --input has.")
    return made


def parse_inputs(texts: Sequence[str], device: "torch.device | str" = "cpu") -> "Inputs":
    """Arguments for one call of a model, filled with random numbers that are always the same.

    Each text is one argument, `[NAME=]SHAPE[:DTYPE[:RANGE]]`: sizes with x between them, or
    `scalar`; float32 unless told; RANGE is `LOW..HIGH`, both within. Floating-point numbers are
    normal, or uniform over their range. Whole numbers need a range: a model looks them up. For
    bool it is 0..1, and 1..1 is a mask that hides nothing.

    >>> found = parse_inputs(["2x3", "ids=1x4:int64:7..7"])
    >>> found.args[0].shape, found.kwargs["ids"].tolist()
    (torch.Size([2, 3]), [[7, 7, 7, 7]])
    """
    import torch

    from slipstream.infer.inputs import Inputs

    if not texts:
        raise UsageError(f"No --input was given: the model has to be called. {_INPUT_FORMS}.")
    own = torch.Generator().manual_seed(0)
    args: list[torch.Tensor] = []
    kwargs: dict[str, torch.Tensor] = {}
    for text in texts:
        name, tensor = _parse_input(text, own)
        if name in kwargs:
            raise UsageError(f"--input {text}: the argument {name} was given before.")
        try:
            placed = tensor.to(device)
        except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
            raise UsageError(
                f"--input {text} cannot be put on {device}: {_first_line(error)}"
            ) from None
        if name:
            kwargs[name] = placed
        else:
            args.append(placed)
    return Inputs(tuple(args), kwargs)


def _parse_input(text: str, own: "torch.Generator") -> tuple[str, "torch.Tensor"]:
    name, equals, rest = text.rpartition("=")
    parts = rest.strip().split(":")
    if (equals and not name.strip().isidentifier()) or len(parts) > 3:
        raise UsageError(f"--input {text}: expected [NAME=]SHAPE[:DTYPE[:RANGE]]. {_INPUT_FORMS}.")
    shape = _parse_shape(parts[0], text)
    dtype = parts[1] if len(parts) > 1 else "float32"
    if dtype not in _FLOATS + _WHOLE:
        known = ", ".join(_FLOATS + _WHOLE)
        raise UsageError(f"--input {text}: {dtype!r} is no type of numbers. Expected {known}.")
    limits = _parse_range(parts[2], text, dtype) if len(parts) > 2 else None
    if limits is None and dtype == "bool":
        limits = (0.0, 1.0)
    if limits is None and dtype in _WHOLE:
        raise UsageError(
            f"--input {text}: whole numbers need a range, both ends within. "
            f"For a vocabulary of 1000: {text}:0..999."
        )
    return name.strip(), _fill(text, shape, dtype, limits, own)


def _parse_shape(shape: str, text: str) -> tuple[int, ...]:
    if shape == "scalar":
        return ()
    if re.fullmatch(r"[1-9]\d*(?:x[1-9]\d*)*", shape) is None:
        raise UsageError(
            f"--input {text}: {shape!r} is no shape. Expected sizes of 1 or more with x between "
            f"them, or scalar. {_INPUT_FORMS}."
        )
    return tuple(int(size) for size in shape.split("x"))


def _parse_range(limits: str, text: str, dtype: str) -> tuple[float, float]:
    number = r"-?\d+(?:\.\d+)?" if dtype in _FLOATS else r"-?\d+"
    match = re.fullmatch(rf"({number})\.\.({number})", limits)
    if match is None or float(match[1]) > float(match[2]):
        kind = "numbers" if dtype in _FLOATS else "whole numbers"
        raise UsageError(
            f"--input {text}: {limits!r} is no range. Expected two {kind}, the lower first: 0..999."
        )
    return float(match[1]), float(match[2])


def _fill(
    text: str, shape: tuple[int, ...], dtype: str, limits: tuple[float, float] | None,
    own: "torch.Generator",
) -> "torch.Tensor":  # fmt: skip
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    if limits is not None and dtype in _WHOLE and dtype != "bool":
        known = torch.iinfo(kind)
        if limits[0] < known.min or limits[1] > known.max:
            raise UsageError(
                f"--input {text}: {dtype} holds numbers from {known.min} to {known.max}."
            )
    try:
        if limits is None:
            return torch.randn(shape, generator=own, device="cpu").to(kind)
        low, high = limits
        if dtype in _FLOATS:
            return (low + (high - low) * torch.rand(shape, generator=own, device="cpu")).to(kind)
        return torch.randint(int(low), int(high) + 1, shape, generator=own, device="cpu").to(kind)
    except (RuntimeError, MemoryError) as error:
        raise UsageError(f"--input {text} cannot be made: {_first_line(error)}") from None


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise UsageError(f"{path} {what}. {_TARGET_FORMS}.")
    path = path.absolute()
    for known in list(sys.modules.values()):
        if getattr(known, "__file__", None) == str(path):
            return known  # a model and its metric may stand in the same file
    _look_in(path.parent)
    # Under its own name, if that is free: what it defines can be pickled and looked up.
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_{path.parent.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file. {_TARGET_FORMS}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _arguments_of(path):
            _run(lambda: spec.loader.exec_module(module), f"{path} cannot be imported")  # type: ignore[union-attr]
    except UsageError as error:
        del sys.modules[name]
        if "attempted relative import" in str(error):
            hint = "It is a part of a package: give package.module:name."
            raise UsageError(f"{error} {hint}") from None
        raise
    return module


@contextmanager
def _arguments_of(path: Path) -> Iterator[None]:
    """Those of a script that is run without any: some read them at once."""
    before = sys.argv
    sys.argv = [str(path)]
    try:
        yield
    finally:
        sys.argv = before


def _load_module(name: str) -> ModuleType:
    _look_in(Path.cwd())

    def load() -> ModuleType:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # something that it imports
            raise UsageError(
                f"There is no module {error.name} in {Path.cwd()} or among what is installed. "
                f"{_TARGET_FORMS}."
            ) from None

    module: ModuleType = _run(load, f"{name} cannot be imported")
    return module


def _look_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _named(module: ModuleType, place: str, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{place} has no {name}.{_names_of(module)}")
        found = getattr(found, part)
    return found


def _model_of(found: Any, target: str) -> "torch.nn.Module":
    import torch

    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise UsageError(f"{target} is {_kind(found)}; expected a module, or what makes one.")
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise UsageError(
            f"{target} cannot be called without arguments: {error}. Write a function without "
            "arguments that makes the model, and name that."
        ) from None
    except ValueError:
        pass  # a signature that Python cannot tell
    made = _run(found, f"{target} failed")
    if not isinstance(made, torch.nn.Module):
        raise UsageError(f"{target} gives {_kind(made)}; expected a torch.nn.Module.")
    return made


def _run(call: Callable[[], Any], what: str) -> Any:
    """The user's own code: whatever it raises becomes one message with the line it came from."""
    try:
        return call()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        where = _line_of(error)
        raise UsageError(f"{what}: {type(error).__name__}: {_first_line(error)}{where}") from None


def _line_of(error: BaseException) -> str:
    """Where it was raised, rather in the user's files than in a package that they use."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in (__file__, importlib.__file__) and frame.filename[0] != "<"
    ]
    packages = ("site-packages", sysconfig.get_path("stdlib"))
    own = [frame for frame in frames if not any(p in frame.filename for p in packages)] or frames
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _names_of(module: ModuleType) -> str:
    """What in it may make a model, as the end of a message."""
    import torch

    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, torch.nn.Module)
            or (callable(value) and getattr(value, "__module__", "") == module.__name__)
        )
    ]
    return f" It has {', '.join(sorted(names)[:12])}." if names else ""


def _names_in_file(target: str) -> str:
    return ", such as model.py:make_model" if target.endswith(".py") else ""


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else "no message"
