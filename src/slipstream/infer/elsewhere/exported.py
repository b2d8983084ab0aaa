"""A model as an ONNX file: made once for all runtimes, and gone with what it was made for."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from slipstream.infer.elsewhere.asking import CannotExport, asked, check
from slipstream.infer.elsewhere.program import Flat, Program, batch_of, of_size, program_of
from slipstream.infer.elsewhere.runtimes import Array
from slipstream.infer.elsewhere.signature import Signature, Taken, arrays_from
from slipstream.infer.elsewhere.whole_numbers import Used, used_in
from slipstream.infer.keeping import TookTooLong
from slipstream.infer.quiet import first_line, quietly
from slipstream.infer.shell import Shell, emptied
from slipstream.infer.subject import Subject


@dataclass(frozen=True)
class Case:
    """A call of the graph, and what the model itself gives for it."""

    batch: int
    arrays: list[Array]
    gives: list[Array]


@dataclass(frozen=True)
class Exported:
    """`signature` answers the batch size of the example; `largest` is the greatest that the graph
    may be right for. `cases` are the example and, for a graph of any batch size, others to prove
    it with. `used`: what it computes with whole numbers.
    """

    file: Path
    signature: Signature
    largest: int
    result: Shell
    cases: tuple[Case, ...]
    used: Used


_made: dict[int, Exported | CannotExport] = {}


def exported(subject: Subject) -> Exported:
    """The file is made at the first call and removed when nobody holds the subject any more.
    Raises `CannotExport`, every time for the same reason.
    """
    key = id(subject)
    if key not in _made:
        folder = Path(tempfile.mkdtemp(prefix="slipstream-onnx-"))
        weakref.finalize(subject, _forget, key, folder)
        try:
            _made[key] = _export(subject, folder)
        except CannotExport as error:
            _made[key] = CannotExport(str(error))
    found = _made[key]
    if isinstance(found, CannotExport):
        raise CannotExport(str(found))
    return found


def _forget(key: int, folder: Path) -> None:
    _made.pop(key, None)
    shutil.rmtree(folder, ignore_errors=True)


def _export(subject: Subject, folder: Path) -> Exported:
    model = subject.copied()
    inputs = subject.inputs.copy()
    tensors, arguments = emptied((inputs.args, dict(sorted(inputs.kwargs.items()))))
    gives, result = asked(model, arguments, tensors)
    check(arguments, tensors, result, gives)
    _check_types((*tensors, *gives))
    program = _program(model, arguments, tensors, folder / "model.onnx")
    takes = tuple(
        Taken(tuple(tensor.shape), tensor.dtype, is_batch)
        for tensor, is_batch in zip(tensors, program.is_batch, strict=True)
    )
    batch = batch_of(tensors)
    cases = [Case(batch, arrays_from(tensors), arrays_from(gives))]
    if any(program.is_batch):
        for size in sorted({1, min(batch + 1, program.largest)} - {batch}):
            cases += _case(model, arguments, of_size(tensors, program.is_batch, size))
    return Exported(
        folder / "model.onnx", Signature(arguments, takes, batch, batch), program.largest, result,
        tuple(cases), used_in(folder / "model.onnx"),
    )  # fmt: skip


def _program(
    model: nn.Module, arguments: Shell, tensors: Sequence[torch.Tensor], file: Path
) -> Program:
    with quietly():
        try:
            program = program_of(Flat(model, arguments), tensors)
            program.save(file)
        except TookTooLong:
            raise
        except Exception as error:
            raise CannotExport(f"cannot be exported: {_words(error)}") from None
    return program


def _words(error: Exception) -> str:
    if (
        type(error).__name__ == "GuardOnDataDependentSymNode"
    ):  # speaks of symbols that torch made up
        return "what it computes depends on the values that it is given"
    return first_line(error)


def _check_types(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        try:
            tensor.numpy(force=True)
        except (TypeError, RuntimeError):
            kind = f"{tensor.layout} {tensor.dtype}".replace("torch.", "")
            raise CannotExport(f"takes or gives {kind}, which NumPy does not have") from None


def _case(model: nn.Module, arguments: Shell, tensors: Sequence[torch.Tensor]) -> list[Case]:
    """None for a size that the model itself does not take."""
    try:
        gives, _ = asked(model, arguments, tensors)
    except TookTooLong:
        raise
    except Exception:
        return []
    return [Case(batch_of(tensors), arrays_from(tensors), arrays_from(gives))]
