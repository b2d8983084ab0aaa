"""The code that a recipe gives away runs without Slipstream, and trains the same, bit for bit."""

import ast
from typing import Any

import pytest
import torch

from slipstream.train.choices import Choices
from slipstream.train.code import code_of
from slipstream.train.step import TrainStep
from tests.train.small import (
    adamw,
    cross_entropy,
    losses_of,
    net,
    pictures,
    pictures_net,
    rows,
    same_bits,
)

CHOICES = {
    "as-written": Choices(),
    "fused": Choices(update="fused"),
    "foreach": Choices(update="foreach", set_to_none=False),
    "channels-last": Choices(channels_last=True, clip_norm=0.1),
    "bf16": Choices(precision="bf16", micro_batch=3),
    "fp16": Choices(precision="fp16", clip_norm=0.1),
    "scaled": Choices(precision="fp16"),
    "average": Choices(ema=0.9, update="loop"),
    "norm": Choices(clip_norm=float("inf")),
    "kernels": Choices(own_kernels=True),
    "gpu": Choices(precision="tf32", cudnn_benchmark=True),
    "compile": Choices(compile=True, clip_norm=0.1),
    "all": Choices("fused", False, True, False, False, "fp16", False, 3, 0.1, 0.9),
}


def made(choices: Choices) -> Any:
    text = code_of(choices, "cpu")
    imported = {
        name.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported <= {"torch", "copy"}
    assert "slipstream" not in text.partition('"""\n')[2]
    assert not [line for line in text.splitlines() if line.endswith(" ") or len(line) > 100]
    space: dict[str, Any] = {}
    exec(compile(text, "made.py", "exec"), space)
    return space["make_step"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of the compiler
@pytest.mark.parametrize("name", CHOICES)
def test_the_code_trains_as_the_step_does(name: str) -> None:
    choices = CHOICES[name]
    flags = (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32)
    matmul = torch.backends.cuda.matmul.allow_tf32
    onednn = torch._C._get_mkldnn_enabled()
    torch.backends.mkldnn.fp32_precision = "ieee"
    make, batches = (net, rows()) if choices.compile else (pictures_net, pictures())
    model, own = make(), make()
    optimizer, other = adamw(model), adamw(own)
    step = TrainStep(model, optimizer, cross_entropy, **choices.as_dict())
    try:
        plain = made(choices)(own, other, cross_entropy)
        assert losses_of(step, batches) == losses_of(plain, batches)
        assert torch._C._get_mkldnn_enabled() == onednn
        assert torch.backends.mkldnn.fp32_precision == "ieee"
    finally:
        torch.backends.mkldnn.fp32_precision = "none"
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = flags
        torch.backends.cuda.matmul.allow_tf32 = matmul
        torch._C._set_mkldnn_enabled(onednn)
    assert same_bits(model.state_dict(), own.state_dict())
    assert same_bits(optimizer.state_dict(), other.state_dict())
    if choices.ema is not None:
        assert same_bits(step.average.state_dict(), plain.average.state_dict())


def test_the_code_clips_parameters_that_come_later() -> None:
    choices = Choices(clip_norm=0.01)
    models = [net(), net()]
    optimizers = [torch.optim.SGD(model[0].parameters(), lr=1.0) for model in models]
    step = TrainStep(models[0], optimizers[0], cross_entropy, **choices.as_dict())
    plain = made(choices)(models[1], optimizers[1], cross_entropy)
    for model, optimizer in zip(models, optimizers, strict=True):
        optimizer.add_param_group({"params": list(model[2].parameters())})
    assert losses_of(step, rows()) == losses_of(plain, rows())
    assert same_bits(models[0].state_dict(), models[1].state_dict())


class Batch(dict[str, torch.Tensor]):
    @property
    def images(self) -> torch.Tensor:
        return self["images"]


def test_batches_stay_of_their_own_class_in_it() -> None:
    def loss_fn(model: Any, batch: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(batch.images), batch["labels"])

    images, labels = pictures()[0]
    for choices in (Choices(channels_last=True), Choices(micro_batch=3)):
        model, own = pictures_net(), pictures_net()
        step = TrainStep(model, adamw(model), loss_fn, **choices.as_dict())
        plain = made(choices)(own, adamw(own), loss_fn)
        batch = Batch(images=images, labels=labels)
        assert float(step(batch)) == float(plain(batch))
