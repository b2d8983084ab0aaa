"""torch's own compilers as changes."""

import copy
import warnings

import pytest
import torch

from slipstream.errors import UsageError
from slipstream.infer.change import Change, Variant
from slipstream.infer.changes import compiled
from slipstream.infer.elsewhere import packaged
from slipstream.infer.elsewhere.process import RuntimeFailed
from slipstream.infer.inputs import inputs_of
from slipstream.infer.subject import Subject
from tests.infer.models import resnet

EXAMPLE = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def subject() -> Subject:
    torch.manual_seed(0)
    return Subject(resnet(8, 1).eval(), inputs_of(EXAMPLE))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of compilers
@pytest.mark.parametrize("change", [compiled.FREEZING, compiled.COMPILE])
def test_frozen_weights_are_constants(subject: Subject, change: Change) -> None:
    made = Variant().plus(change).build(subject)
    before = made(EXAMPLE)
    torch.testing.assert_close(before, subject.model(EXAMPLE), rtol=1e-3, atol=1e-4)
    next(made.parameters()).data.zero_()  # of a convolution, which is folded and packed
    assert torch.equal(made(EXAMPLE), before) == (change is compiled.FREEZING)
    assert not torch._inductor.config.freezing


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ahead_of_time_takes_other_shapes_as_the_model_does(subject: Subject) -> None:
    made = Variant().plus(compiled.AHEAD_OF_TIME).build(subject)
    laid_otherwise = EXAMPLE.contiguous(memory_format=torch.channels_last)
    turned = EXAMPLE.transpose(2, 3).contiguous().transpose(2, 3)
    within = torch.zeros(EXAMPLE.numel() + 1)[1:].view_as(EXAMPLE).copy_(EXAMPLE)
    repeated = EXAMPLE[:1].expand_as(EXAMPLE)
    shapes = (EXAMPLE, EXAMPLE[:1], torch.cat([EXAMPLE, EXAMPLE]))
    for example in (*shapes, laid_otherwise, turned, within, repeated):
        expected = subject.model(example)
        torch.testing.assert_close(made(example), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_a_package_that_crashes_does_so_elsewhere(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaged, "_CHILD", "tests.infer.crashing_child")
    with pytest.raises(RuntimeFailed, match="AOTInductor crashed: Segmentation fault"):
        Variant().plus(compiled.AHEAD_OF_TIME).build(subject)


@pytest.mark.filterwarnings("ignore")
def test_torchscript(subject: Subject) -> None:
    made = Variant().plus(compiled.TORCHSCRIPT).build(subject)
    torch.testing.assert_close(made(EXAMPLE), subject.model(EXAMPLE), rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_weights_that_would_reach_nothing_are_refused(subject: Subject) -> None:
    made = Variant().plus(compiled.TORCHSCRIPT).build(subject)
    own = {name: value.clone() for name, value in made.state_dict().items()}
    made.load_state_dict(own)
    other = {name: value + 1 if value.is_floating_point() else value for name, value in own.items()}
    for whole, prefix in ((made, ""), (torch.nn.Sequential(made), "0.")):
        with pytest.raises(UsageError, match="constants of what was compiled"):
            whole.load_state_dict({prefix + name: value for name, value in other.items()})
    beside = torch.nn.Sequential(made, torch.nn.Linear(2, 2))
    head = {name: value for name, value in beside.state_dict().items() if name.startswith("1.")}
    beside.load_state_dict(head, strict=False)
    torch.testing.assert_close(made(EXAMPLE), subject.model(EXAMPLE), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_many_variants_of_one_model_are_all_compiled() -> None:
    """torch stops after eight of the same code."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).eval()
    subject = Subject(model, inputs_of(torch.ones(1, 4)))
    from torch._dynamo.utils import counters

    before = counters["stats"]["unique_graphs"]
    kept = [Variant().plus(compiled.COMPILE).build(subject) for _ in range(10)]
    for made in kept:
        made(torch.ones(1, 4))
    assert counters["stats"]["unique_graphs"] - before == 10


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(
        self, x: torch.Tensor, scale: float = 1.0, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        y = self.layer(x).sum(0) / len(x) * scale
        return y if mask is None else y * mask


@pytest.mark.parametrize(
    ("change", "scale"),
    [(compiled.TORCHSCRIPT, {}), (compiled.AHEAD_OF_TIME, {"scale": 2.0})],  # a trace takes none
)
def test_what_was_made_of_one_call_answers_others_as_the_model_does(
    change: Change, scale: dict[str, float]
) -> None:
    model = Scaled().eval().requires_grad_(False)
    x, mask = torch.randn(4, 4), torch.tensor([1.0, 0.0, 2.0, 1.0])
    made = Variant().plus(change).build(Subject(model, inputs_of({"x": x, **scale})))
    for args, kwargs in (
        ((), {"x": x, "scale": 2.0}), ((), {"scale": 3.0, "x": x}), ((x, 2.0), {}), ((x,), {}),
        ((torch.randn(16, 4), 2.0), {}), ((x,), {"scale": 2.0, "mask": mask}),
    ):  # fmt: skip
        torch.testing.assert_close(made(*args, **kwargs), model(*args, **kwargs))


class Guarded(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.abs().max() if x.abs().max() > 10 else x


class Masked(torch.nn.Module):
    """Torch's tracer says nothing of the question."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if torch.equal(x, torch.ones_like(x)) else x * 2


class Silent(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return x if x.min() > 0 else -x


class Counted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : int((x > 0).sum())].sum()


class Walked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return state


@pytest.mark.parametrize("model", [Guarded(), Counted(), Masked(), Silent()])
def test_a_way_that_depends_on_values_is_not_traced(model: torch.nn.Module) -> None:
    subject = Subject(model.eval(), inputs_of(torch.ones(2, 4)))
    with pytest.raises(ValueError, match="may depend on the values"):
        Variant().plus(compiled.TORCHSCRIPT).build(subject)


def test_a_way_that_depends_on_shapes_is() -> None:
    model = Walked().eval().requires_grad_(False)
    made = (
        Variant().plus(compiled.TORCHSCRIPT).build(Subject(model, inputs_of(torch.ones(2, 5, 4))))
    )
    for length in (5, 9):
        x = torch.randn(2, length, 4)
        torch.testing.assert_close(made(x), model(x))


def test_models_with_hooks_are_not_made_into_graphs() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    subject = Subject(model, inputs_of(torch.ones(2, 4)))
    changes = (compiled.TORCHSCRIPT, compiled.AHEAD_OF_TIME)
    assert not any(change.why_not(subject) for change in changes)
    seen: list[object] = []
    model[0].register_forward_hook(lambda part, given, result: seen.append(result))
    for change in changes:
        assert "calls hooks" in (change.why_not(subject) or "")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_deep_copy_computes_with_its_own_weights() -> None:
    model = torch.nn.Linear(4, 2)
    example = torch.randn(3, 4)
    made = Variant().plus(compiled.COMPILE).build(Subject(model, inputs_of(example)))
    own = copy.deepcopy(made)
    other = torch.nn.Linear(4, 2)
    inner = own.model  # in inference mode
    inner.load_state_dict({f"{k}": v for k, v in _prefixed(inner, other).items()})
    with torch.no_grad():
        torch.testing.assert_close(own(example), other(example))
        torch.testing.assert_close(made(example), model(example))


def _prefixed(holder: torch.nn.Module, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    names = list(holder.state_dict())
    return dict(zip(names, model.state_dict().values(), strict=True))
