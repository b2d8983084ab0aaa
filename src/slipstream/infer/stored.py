"""A variant on disk: which changes it is made of, and what it has to answer.

The model itself is not stored: it is built again from the caller's, with the weights that it has,
and the gates are asked again. Where anything is not as it was, the caller's model is used.
"""

import json
import platform
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import slipstream
from slipstream.cpu import usable_cores
from slipstream.errors import UsageError
from slipstream.infer import known
from slipstream.infer.change import PRECISION, Change, Variant
from slipstream.infer.changes.around import threads
from slipstream.infer.gates.contract import contract
from slipstream.infer.gates.elsewhere import elsewhere
from slipstream.infer.gates.numeric import numeric
from slipstream.infer.gates.reference import ask, reference_of
from slipstream.infer.inputs import Inputs, inputs_of
from slipstream.infer.keeping import everything_as_before
from slipstream.infer.leaves import tensors_of
from slipstream.infer.optimized import INFERENCE_MODE, Optimized
from slipstream.infer.quiet import first_line
from slipstream.infer.subject import Subject, copied, expect_module, in_evaluation

FORMAT = 1
_THREADS = re.compile("([1-9][0-9]{0,8}) threads?")
_RECIPE, _TENSORS = "recipe.json", "tensors.pt"
_CPU = torch.device("cpu")
_LOSSY = 0.02  # of a result's size: how far a variant may be from what it gave when it was stored


def save_optimized(found: Optimized, folder: Path | str) -> None:
    """Write it into a folder, which is made if it is not there."""
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{place} cannot be made ({error.strerror}); expected a folder for the variant."
        ) from None
    subject = found.subject
    with everything_as_before(subject.model):
        asked = (
            in_evaluation(copied(subject.model)) if found.model is subject.model else found.model
        )
        answer = tensors_of(ask(asked, subject.inputs))
    device = subject.device
    tensors = {
        "inputs": _plain(subject.inputs, device),
        "calibration": [_plain(each, device) for each in subject.calibration],
        "also": [_plain(each, device) for each in found.also],
        "answer": [tensor.cpu() for tensor in answer],
    }
    try:
        torch.save(tensors, place / _TENSORS)
        torch.load(place / _TENSORS, weights_only=True)
    except Exception as error:
        (place / _TENSORS).unlink(missing_ok=True)
        raise UsageError(
            f"The inputs of {type(subject.model).__name__} cannot be stored: they hold more than "
            f"tensors, numbers and strings ({str(error).splitlines()[0]})."
        ) from None
    recipe = {
        "format": FORMAT,
        "changes": [change.name for change in found.variant.changes],
        "model": type(subject.model).__qualname__,
        **_here(subject),
        **found.as_dict(),
    }
    (place / _RECIPE).write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8")


def load_optimized(folder: Path | str, model: torch.nn.Module) -> torch.nn.Module:
    """The stored variant of this model, built and judged again; the model itself, in evaluation,
    where none was faster, or where it cannot be built or gives other answers, which a warning says.
    Reading it runs no code that is in the folder.
    """
    expect_module(model)
    place = Path(folder)
    recipe = _read(place)
    variant = Variant(tuple(_changes(recipe["changes"], place)))
    if len({change.place for change in variant.changes}) < len(variant.changes):
        raise UsageError(f"{place / _RECIPE} names two changes of the same kind.")
    if not variant.changes and recipe.get("variant") != INFERENCE_MODE:
        return _in_evaluation(model)
    stored = _tensors(place)
    with everything_as_before(model):
        device = next((t.device for t in (*model.parameters(), *model.buffers())), _CPU)
        inputs = _placed(stored["inputs"], device)
        calibration = [_placed(each, device) for each in stored["calibration"]]
        also = [_placed(each, device) for each in stored["also"]]
        own = in_evaluation(copied(model))  # it may count its calls, and do more than switch
        subject = Subject(own, inputs, tuple(calibration))
        made_with, made_on = recipe.get("torch"), recipe.get("machine")
        if made_with != torch.__version__ or made_on != _here(subject)["machine"]:
            _warn(
                f"{place} was made with torch {made_with} on {made_on}: its speed is not known here"
            )
        try:
            why = _not_here(variant, subject)
            built = model if why else variant.build(subject)
            why = why or _judge(built, variant, subject, also, stored["answer"])
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if why is None:
            return built
    _warn(f"{place}: {variant.name} is not used: {why}. The model runs as it is")
    return _in_evaluation(model)


def _in_evaluation(model: torch.nn.Module) -> torch.nn.Module:
    model.eval()  # which need not return it
    return model


def _not_here(variant: Variant, subject: Subject) -> str | None:
    """Numbers that this machine has no arithmetic for."""
    asked = (change.why_not(subject) for change in variant.changes if change.place == PRECISION)
    return next((why for why in asked if why), None)


def _judge(
    built: Any, variant: Variant, subject: Subject, also: Sequence[Inputs], answer: list[Any]
) -> str | None:
    reference = reference_of(subject, also)
    why = contract(built, reference) or numeric(built, reference, variant.kind)[0]
    if why is None and variant.kind == "exact":
        why = elsewhere(built, reference)
    if why is None and variant.kind == "lossy":
        # Its errors were judged by the task; what it gave then is what it has to give now.
        for one, other in zip(tensors_of(ask(built, subject.inputs)), answer, strict=True):
            if not _is_near(one.double().cpu(), other.double()):
                return "it gives others than when it was stored"
    return why


def _is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Infinite where it was infinite, as masked scores are, and near elsewhere."""
    known = other.isfinite()
    if not torch.equal(one[~known].nan_to_num(), other[~known].nan_to_num()):
        return False
    apart, size = ((each[known] ** 2).mean().sqrt() for each in (one - other, other))
    return not known.any() or bool(apart <= _LOSSY * size)


def _read(place: Path) -> dict[str, Any]:
    try:
        recipe = json.loads((place / _RECIPE).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{place / _RECIPE} cannot be read ({error.strerror}). Give a folder that "
            "`save` or `slipstream optimize --save` has written."
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place / _RECIPE} is no JSON: {error}. Store the model again.") from None
    if not isinstance(recipe, dict) or recipe.get("format") != FORMAT:
        got = recipe.get("format") if isinstance(recipe, dict) else type(recipe).__name__
        raise UsageError(
            f"{place / _RECIPE} has format {got!r}; this Slipstream ({slipstream.__version__}) "
            f"reads {FORMAT}. Store the model again."
        )
    names = recipe.get("changes")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{place / _RECIPE} has no list of changes. Store the model again.")
    return recipe


def _tensors(place: Path) -> dict[str, Any]:
    try:
        stored = torch.load(place / _TENSORS, weights_only=True)
        if {"inputs", "calibration", "also", "answer"} <= stored.keys():
            for call in (stored["inputs"], *stored["calibration"], *stored["also"]):
                _placed(call, _CPU)
            return dict(stored)
        why = "it lacks inputs, calibration, also or answer"
    except Exception as error:
        why = first_line(error)
    raise UsageError(f"{place / _TENSORS} cannot be read ({why}). Store the model again.")


def _changes(names: list[str], place: Path) -> Iterator[Change]:
    """Those of a recipe, without threads that there are no cores for."""
    for name in names:
        count = _THREADS.fullmatch(name)
        if count is None:
            yield _change(name, place)
        elif int(count[1]) <= usable_cores():
            yield threads(int(count[1]))
        else:
            _warn(f"{place} takes {name}, and there are {usable_cores()} cores: left out")


def _change(name: str, place: Path) -> Change:
    found = known.all_changes().get(name)
    if found is None:
        raise UsageError(f"{place / _RECIPE} names {name!r}, which this Slipstream cannot do.")
    return found


def _plain(inputs: Inputs, device: torch.device) -> tuple[list[Any], dict[str, Any], list[bool]]:
    """And which of the tensors lie on the model's device: lengths of sequences may not."""
    # Of their own: a view would bring all that lies around it.
    made = inputs_of(inputs).map(lambda tensor: tensor.detach().cpu().clone())
    is_there = [tensor.device.type == device.type for tensor in inputs.tensors()]
    return list(made.args), dict(made.kwargs), is_there


def _placed(stored: tuple[list[Any], dict[str, Any], list[bool]], device: torch.device) -> Inputs:
    args, kwargs, is_there = stored
    places = iter(is_there)
    return Inputs(tuple(args), kwargs).map(lambda t: t.to(device) if next(places) else t)


def _here(subject: Subject) -> dict[str, str]:
    machine = platform.machine()
    if subject.device.type == "cuda":
        machine = torch.cuda.get_device_name(subject.device)
    return {"torch": torch.__version__, "machine": machine}


def _warn(words: str) -> None:
    warnings.warn(f"slipstream: {words}.", stacklevel=3)
