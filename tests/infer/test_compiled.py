"""torch's own compilers as changes."""

import pytest
import torch

from slipstream.infer.change import Change, Variant
from slipstream.infer.changes import compiled
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
    for example in (EXAMPLE, EXAMPLE[:1], torch.cat([EXAMPLE, EXAMPLE])):
        expected = subject.model(example)
        torch.testing.assert_close(made(example), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_torchscript(subject: Subject) -> None:
    made = Variant().plus(compiled.TORCHSCRIPT).build(subject)
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
