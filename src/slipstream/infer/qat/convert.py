"""What is left of a model after training with quantized weights: whole numbers, and a report."""

import copy
from dataclasses import dataclass

from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.qat.coded import CodedLayer
from slipstream.infer.qat.integer import integer_layer
from slipstream.infer.qat.layer import LAYERS, QatLayer
from slipstream.infer.qat.parts import bytes_of, replaced
from slipstream.infer.qat.ranges import ActivationRange
from slipstream.infer.qat.report import Line, Report
from slipstream.infer.subject import in_evaluation


@dataclass
class Converted:
    """`model` is in evaluation. `report` says what is really smaller and what is only simulated."""

    model: nn.Module
    report: Report

    def __str__(self) -> str:
        return str(self.report)


def convert_qat(model: nn.Module, *, integers: bool = True) -> Converted:
    """A copy of a model from `prepare_qat`, trained, that keeps its weights as whole numbers and
    its batch norms folded.

    A layer of 8 bits on a CPU computes with whole numbers where torch has a kernel for it; each is
    compared with what was trained before it is taken. All others are kept packed, up to 8 weights
    in a byte, and computed in floating-point, with weights that are unpacked for each call:
    smaller, not faster. `integers=False` does the same with layers of 8 bits, which is faster on
    processors for which torch's kernels are not made.

    >>> import torch
    >>> from slipstream.infer.qat import prepare_qat
    >>> layers = [nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)]
    >>> trained = prepare_qat(nn.Sequential(*layers), torch.randn(8, 64), bits=4)
    >>> [line.weights for line in convert_qat(trained).report.lines]
    ['float', '4 bit', 'float']
    """
    made = in_evaluation(copy.deepcopy(model))
    for parameter in made.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    before = bytes_of(made) - _bytes_of_ranges(made)
    lines = []
    inner = {id(part.layer) for part in made.modules() if isinstance(part, QatLayer)}
    for name, part in list(made.named_modules()):
        if isinstance(part, QatLayer):
            layer, line = _converted(name, part, integers)
            made = replaced(made, part, layer)
            lines.append(line)
        elif type(part) in LAYERS and id(part) not in inner:
            size = bytes_of(part)
            lines.append(Line(name, "float", "float", "float", "as it was", size, size))
    if all(line.weights == "float" for line in lines):
        raise UsageError(
            f"{type(model).__name__} has no quantized layer. Give a model from prepare_qat."
        )
    return Converted(made, Report(lines, before, bytes_of(made)))


def _converted(name: str, trained: QatLayer, integers: bool) -> tuple[CodedLayer, Line]:
    integer, why = integer_layer(trained) if integers else (None, "integers=False")
    layer = CodedLayer(trained) if integer is None else integer
    line = Line(
        name or type(trained.layer).__name__,
        trained.form.name,
        f"{trained.activations.bits} bit",
        "float" if integer is None else "integer",
        why,
        bytes_of(trained) - _bytes_of_ranges(trained),
        bytes_of(layer),
    )
    return layer, line


def _bytes_of_ranges(model: nn.Module) -> int:
    return sum(bytes_of(part) for part in model.modules() if isinstance(part, ActivationRange))
