"""A variant that was stored is built again, and judged again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer import known, load
from slipstream.infer.change import Change, Variant
from slipstream.infer.changes import precision
from slipstream.infer.changes.around import threads
from slipstream.infer.changes.layout import CHANNELS_LAST, FOLD
from slipstream.infer.inputs import Inputs, inputs_of
from slipstream.infer.optimize import optimize_model
from slipstream.infer.optimized import Optimized
from slipstream.infer.stored import _is_near, _placed, _plain
from slipstream.infer.subject import Subject
from tests.infer.models import resnet


@pytest.fixture
def found() -> Optimized:
    torch.manual_seed(0)
    model = resnet(8, 1).eval()
    subject = Subject(model, inputs_of(torch.randn(2, 3, 32, 32)))
    variant = Variant().plus(FOLD).plus(CHANNELS_LAST).plus(threads(1))
    return Optimized(variant.build(subject), variant, [], subject)


def test_it_is_built_again(found: Optimized, tmp_path: Path) -> None:
    found.save(tmp_path / "fast")
    again = load(tmp_path / "fast", found.subject.model)
    example = found.subject.inputs.args[0]
    assert again is not found.subject.model
    assert torch.equal(again(example), found.model(example))
    assert json.loads((tmp_path / "fast" / "recipe.json").read_text())["changes"] == [
        "fold", "channels-last", "1 thread",
    ]  # fmt: skip


def test_other_shapes_are_asked_again(tmp_path: Path) -> None:
    class Short(torch.nn.Module):
        """As if a new version of a library took one shape alone."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) != 2:
                raise ValueError("of two alone")
            return x + 1

    class Whole(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    made = Change("short", "exact", FOLD.place, lambda model, subject: Short())
    subject = Subject(Whole(), inputs_of(torch.ones(2, 4)))
    variant = Variant().plus(made)
    for also in ((), (inputs_of(torch.ones(3, 4)),)):
        Optimized(Short(), variant, [], subject, also).save(tmp_path / str(len(also)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known, "all_changes", lambda: {"short": made})
        assert load(tmp_path / "0", subject.model) is not subject.model
        with pytest.warns(UserWarning, match="short is not used: "):
            assert load(tmp_path / "1", subject.model) is subject.model


def test_inputs_stay_where_the_model_wants_them() -> None:
    elsewhere = torch.device("meta")  # whose tensors have no values to store
    given = Inputs((torch.ones(2), torch.ones(3)))
    assert _plain(given, elsewhere)[2] == [False, False]
    placed = _placed(([torch.ones(2), torch.ones(3)], {}, [True, False]), elsewhere)
    assert [tensor.device.type for tensor in placed.tensors()] == ["meta", "cpu"]


def test_infinite_answers_are_compared_as_such() -> None:
    masked = torch.tensor([1.0, -torch.inf, 2.0, torch.nan])
    assert _is_near(masked + 1e-3, masked)
    assert not _is_near(masked + 1.0, masked)
    assert not _is_near(torch.tensor([1.0, 0.0, 2.0, torch.nan]), masked)
    assert _is_near(masked[1:2], masked[1:2])


def test_inference_mode_alone_is_built_again(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    subject = Subject(model, inputs_of(torch.ones(2, 4)))
    found = Optimized(Variant().build(subject), Variant(), [], subject)
    assert found.name == "inference-mode"
    found.save(tmp_path)
    again = load(tmp_path, model.train())
    assert torch.equal(again(torch.ones(2, 4)), model[0](torch.ones(2, 4)))
    assert model.training


def test_threads_that_there_are_no_cores_for_are_left_out(found: Optimized, tmp_path: Path) -> None:
    found.save(tmp_path)
    file = tmp_path / "recipe.json"
    recipe = json.loads(file.read_text())
    file.write_text(json.dumps({**recipe, "changes": ["fold", "channels-last", "30000 threads"]}))
    with pytest.warns(UserWarning, match="takes 30000 threads, and there are .* left out"):
        again = load(tmp_path, found.subject.model)
    example = found.subject.inputs.args[0]
    assert again is not found.subject.model
    torch.testing.assert_close(again(example), found.model(example), rtol=1e-4, atol=1e-5)


def test_fewer_bits_that_the_machine_does_not_have_are_not_used(
    found: Optimized, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.save(tmp_path)
    file = tmp_path / "recipe.json"
    recipe = json.loads(file.read_text())
    file.write_text(json.dumps({**recipe, "changes": ["fold", "bf16"]}))
    monkeypatch.setattr(precision, "why_no", lambda what: f"the processor has no {what}")
    model = found.subject.model
    with pytest.warns(UserWarning, match="fold . bf16 is not used: the processor has no bf16"):
        assert load(tmp_path, model) is model


def test_with_the_weights_that_the_model_has_now(found: Optimized, tmp_path: Path) -> None:
    found.save(tmp_path)
    torch.manual_seed(1)
    other = resnet(8, 1)
    again = load(tmp_path, other)
    example = found.subject.inputs.args[0]
    torch.testing.assert_close(again(example), other.eval()(example), rtol=1e-4, atol=1e-5)


def test_a_model_that_it_does_not_fit_runs_as_it_is(found: Optimized, tmp_path: Path) -> None:
    found.save(tmp_path)
    other = torch.nn.Linear(4, 2)
    with pytest.warns(UserWarning, match="is not used: .* The model runs as it is"):
        assert load(tmp_path, other) is other


def test_another_machine_is_told(found: Optimized, tmp_path: Path) -> None:
    found.save(tmp_path)
    recipe = json.loads((tmp_path / "recipe.json").read_text())
    (tmp_path / "recipe.json").write_text(json.dumps({**recipe, "torch": "1.0"}))
    with pytest.warns(UserWarning, match=r"made with torch 1.0 .* its speed is not known here"):
        load(tmp_path, found.subject.model)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "has format 'list'"),
        ('{"format": 99}', "has format 99; this Slipstream"),
        ('{"format": 1, "changes": ["magic"]}', "names 'magic', which this Slipstream cannot do"),
        ('{"format": 1}', "has no list of changes"),
        ('{"format": 1, "changes": [1]}', "has no list of changes"),
        ('{"format": 1, "changes": ["0 threads"]}', "names '0 threads'"),
        ('{"format": 1, "changes": ["² threads"]}', "names '² threads'"),
        ('{"format": 1, "changes": ["torchscript", "compile"]}', "two changes of the same kind"),
        ('{"format": 1, "changes": ["torchscript"]}', r"tensors.pt cannot be read"),
    ],
)
def test_what_is_no_recipe(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(UsageError, match=words):
        load(tmp_path, torch.nn.Linear(1, 1))
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "nothing", torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"format": 1, "changes": ["' + "9" * 5000 + ' threads"]}'],
    ids=["nested", "threads"],
)
def test_recipes_that_are_too_much(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(UsageError, match=r"recipe\.json"):
        load(tmp_path, nn.Linear(2, 2))


@pytest.mark.parametrize(
    "wrong",
    [{"inputs": 3}, {"inputs": ([torch.ones(1)], {}, [])}, {"also": 5}, {"calibration": None}],
    ids=["inputs", "devices", "also", "calibration"],
)
def test_calls_that_are_none(found: Optimized, tmp_path: Path, wrong: Any) -> None:
    found.save(tmp_path)
    tensors = torch.load(tmp_path / "tensors.pt", weights_only=True)
    torch.save({**tensors, **wrong}, tmp_path / "tensors.pt")
    with pytest.raises(UsageError, match=r"tensors\.pt cannot be read"):
        load(tmp_path, resnet())


def test_inputs_that_cannot_be_stored(tmp_path: Path) -> None:
    class Own:
        pass

    class Takes(torch.nn.Module):
        def forward(self, x: torch.Tensor, own: object) -> torch.Tensor:
            return x

    model = Takes()
    subject = Subject(model, inputs_of((torch.ones(2), Own())))
    with pytest.raises(UsageError, match="cannot be stored"):
        Optimized(model, Variant(), [], subject).save(tmp_path)


def test_loading_asks_a_copy(tmp_path: Path) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(3, 4, 3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.layer(x)

    model = Counting().eval()
    subject = Subject(model, inputs_of(torch.randn(2, 3, 8, 8)))
    variant = Variant().plus(CHANNELS_LAST)
    Optimized(variant.build(subject), variant, [], subject).save(tmp_path)
    before = model.calls.clone()
    load(tmp_path, model)
    assert torch.equal(model.calls, before)


def test_saving_leaves_the_callers_state(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    whole = torch.randn(100_000)
    found = optimize_model(model, whole[:8].view(2, 4), budget_s=0)
    assert found.model is model and model.training
    before = model[1].running_mean.clone()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    found.save(tmp_path)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(model[1].running_mean, before)
    assert (tmp_path / "tensors.pt").stat().st_size < 10_000
