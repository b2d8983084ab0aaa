"""What a model gives: as it is, and in double precision."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.infer.elsewhere.asking import are_same
from slipstream.infer.inputs import Inputs, masked, other_values, times, with_zeros
from slipstream.infer.leaves import as_double, changed, tensors_of
from slipstream.infer.quiet import first_line
from slipstream.infer.shell import PLAIN, emptied
from slipstream.infer.subject import Subject, copied
from slipstream.rng import seed_torch

_OTHERS = 3
_FACTORS = (100.0, 1e-3)


@dataclass(frozen=True)
class Answer:
    """To one call. `exact` is None where the model cannot compute in double precision."""

    inputs: Inputs
    eager: Any
    exact: Any


@dataclass(frozen=True)
class Reference:
    """Answers to the example and to other values of its shape, and to inputs of other shapes.
    `far`: to much larger and much smaller values than the example's, to nothing among them, and to
    samples that are masked.
    """

    answers: tuple[Answer, ...]
    others: tuple[Answer, ...] = ()
    changes_inputs: bool = False
    far: tuple[Answer, ...] = ()


def reference_of(subject: Subject, also: Sequence[Inputs] = ()) -> Reference:
    """Ask the model itself, and a copy in double precision."""
    changes_inputs = _check(subject)
    asked = [subject.inputs, *(other_values(subject.inputs, seed) for seed in range(_OTHERS))]
    try:
        double: torch.nn.Module | None = copied(subject.model).double()
    except Exception:
        double = None

    def answer(inputs: Inputs) -> Answer:
        return Answer(inputs, ask(subject.model, inputs), _exactly(double, inputs))

    others = []
    for number, inputs in enumerate(also):
        try:
            others.append(answer(inputs))
        except Exception as error:
            raise UsageError(failure_of(subject.model, inputs, f"also[{number}]", error)) from error

    def answers(asked: Sequence[Inputs]) -> Iterator[Answer]:
        for inputs in asked:
            with suppress(Exception):  # values that it was not made for
                yield answer(inputs)

    first = answer(asked[0])
    far = [times(subject.inputs, factor) for factor in _FACTORS]
    far += [with_zeros(subject.inputs, 0), masked(subject.inputs)]
    return Reference(
        (first, *answers(asked[1:])), tuple(others), changes_inputs, tuple(answers(far))
    )


def undefined_in(reference: Reference) -> str:
    """How many of the model's own results are NaN, in words; an empty string where none is."""
    given = tensors_of(reference.answers[0].eager)
    results = [result for result in given if result.layout is torch.strided]
    count = sum(int(result.isnan().sum()) for result in results)
    if not count:
        return ""
    total = sum(result.numel() for result in results)
    return f"it gives NaN in {count:,} of {total:,} results, where nothing can be compared"


def failure_of(model: torch.nn.Module, inputs: Inputs, what: str, error: Exception) -> str:
    """In words, where it is the model's own."""
    shapes = ", ".join(str(tuple(t.shape)) for t in inputs.tensors())
    first = (str(error).strip().splitlines() or [""])[0]
    return (
        f"{type(model).__name__} fails itself with {what} of {shapes}: "
        f"{type(error).__name__}: {first}"
    )


def _check(subject: Subject) -> bool:
    """Returns whether it changes its inputs."""
    given = subject.inputs.copy()
    try:
        result = _asked(subject.model, given)
    except Exception as error:
        raise UsageError(failure_of(subject.model, subject.inputs, "inputs", error)) from error
    unknown = [leaf for leaf in emptied(result)[1].others() if not isinstance(leaf, PLAIN)]
    if unknown:
        raise UsageError(
            f"{type(subject.model).__name__} gives a {type(unknown[0]).__name__}, which cannot be "
            "compared; expected tensors, numbers and strings in tuples, lists, dicts, dataclasses."
        )
    try:
        return not all(map(are_same, given.tensors(), subject.inputs.tensors()))
    except Exception as error:  # sparse ones
        raise UsageError(
            f"Inputs of {type(subject.model).__name__} cannot be compared: {first_line(error)}"
        ) from error


def ask(model: Any, inputs: Inputs) -> Any:
    """A call with random numbers that are always the same, without gradients; what it gives is
    the caller's own.
    """
    return _asked(model, inputs.copy())


def _asked(model: Any, given: Inputs) -> Any:
    seed_torch(0)
    with torch.no_grad():
        return changed(given(model), lambda tensor: tensor.detach().clone())


def _exactly(model: Any, inputs: Inputs) -> Any:
    if model is None:
        return None
    try:
        double = Inputs(*as_double((inputs.args, dict(inputs.kwargs))))
        return ask(model, double)
    except Exception:  # an operation that has no double precision
        return None
