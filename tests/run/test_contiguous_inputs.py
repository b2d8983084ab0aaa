"""`contiguous-inputs`: one copy where bits stay, none where they do not."""

from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.run.fixes import contiguous_inputs
from tests.run.loop_kit import same_losses, situation

LOOP = """
import torch
torch.manual_seed(0)
first, second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 4, 3)
model = torch.nn.ModuleList([first, second])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
kinds = []
own = torch.nn.Conv2d._conv_forward
def look(module, x, weight, bias):
    kinds.append(x.is_contiguous())
    return own(module, x, weight, bias)
torch.nn.Conv2d._conv_forward = look
try:
    for step in range(6):
        x = {input}
        optimizer.zero_grad()
        hidden = first(x).relu()
        second(hidden{view}).square().mean().backward()
        optimizer.step()
finally:
    torch.nn.Conv2d._conv_forward = own
"""


def test_views_are_copied_once(tmp_path: Path) -> None:
    source = LOOP.format(input="torch.randn(4, 3, 16, 16)", view=".transpose(2, 3)")
    names, known = same_losses(source, tmp_path, "contiguous-inputs")
    assert all(names["kinds"][-4:])
    assert known.notes["contiguous-inputs"][0].startswith("copied once")


def test_evaluation_in_inference_mode_is_left_alone(tmp_path: Path) -> None:
    source = LOOP.format(input="torch.randn(4, 3, 16, 16)", view=".transpose(2, 3)")
    source = source.replace(
        "    for step in range(6):\n",
        "    for step in range(6):\n"
        "        with torch.inference_mode():\n"
        "            second(torch.randn(4, 8, 16, 16)[:, :, ::2].transpose(2, 3))\n",
    )
    names, known = same_losses(source, tmp_path, "contiguous-inputs")
    assert names["kinds"][-3:] == [False, True, True]
    assert known.notes["contiguous-inputs"][0].startswith("copied once")


@pytest.mark.parametrize(
    ("given", "view"),
    [
        ("torch.randn(4, 3, 16, 16)", ""),
        ("torch.randn(4, 16, 16, 3).permute(0, 3, 1, 2)", ""),  # an order that kernels know
    ],
)
def test_what_lies_well_is_left_alone(tmp_path: Path, given: str, view: str) -> None:
    source = LOOP.format(input=given, view=view)
    _, known = same_losses(source, tmp_path, "contiguous-inputs")
    assert known.notes == {}


def test_layers_that_round_differently_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: Any = torch.nn.Conv2d.forward

    def forward(module: Any, input: Any) -> Any:
        return own(module, input) * (1.0 if input.is_contiguous() else 1.0001)

    monkeypatch.setattr(torch.nn.Conv2d, "forward", forward)
    source = LOOP.format(input="torch.randn(4, 3, 16, 16)", view=".transpose(2, 3)")
    names, known = same_losses(source, tmp_path, "contiguous-inputs")
    assert names["kinds"][-4:] == [True, False] * 2
    assert known.notes["contiguous-inputs"][0].startswith("left alone")


def test_hooks_of_weights_are_called_as_often_as_before(tmp_path: Path) -> None:
    source = LOOP.format(input="torch.randn(4, 3, 16, 16)", view=".transpose(2, 3)").replace(
        "kinds = []",
        "kinds, calls = [], []\n"
        "second.weight.register_hook(lambda grad: calls.append(1))\n"
        "second.bias.register_hook(lambda grad: calls.append(1))",
    )
    names, known = same_losses(source, tmp_path, "contiguous-inputs")
    assert len(names["calls"]) == 12
    assert known.notes["contiguous-inputs"][0].startswith("copied once")


def test_weights_that_are_computed_are_left_alone(tmp_path: Path) -> None:
    source = LOOP.format(input="torch.randn(4, 3, 16, 16)", view=".transpose(2, 3)").replace(
        "kinds = []", "kinds = []\ntorch.nn.utils.parametrizations.weight_norm(second)"
    )
    names, known = same_losses(source, tmp_path, "contiguous-inputs")
    assert names["kinds"][-4:] == [True, False] * 2
    assert known.notes == {}


def test_a_failure_goes_on_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise ValueError("broken")

    monkeypatch.setattr(contiguous_inputs, "_is_same", fail)
    known = situation()
    undo = contiguous_inputs.apply(known)
    view = torch.randn(2, 3, 8, 8).transpose(2, 3)
    with pytest.warns(UserWarning, match="contiguous-inputs failed"):
        out = torch.nn.Conv2d(3, 2, 3)(view)
    undo()
    assert out.shape == (2, 2, 6, 6)


def test_it_applies_where_views_cost() -> None:
    assert contiguous_inputs.applies(situation(rules=("non-contiguous-input",)))[0]
    assert not contiguous_inputs.applies(situation())[0]
