"""A student that learns from a teacher: what is added to its loss, and what stays as it is."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from slipstream.errors import UsageError
from slipstream.infer.compress.distill import apart, distill, divergence

OWN = torch.Generator().manual_seed(0)
TRUTH = torch.randn(8, 4, generator=OWN)
INPUTS = torch.randn(512, 8, generator=OWN)
SCORES = torch.tanh(INPUTS) @ TRUTH
NOISY = torch.where(torch.rand(512, generator=OWN) < 0.4, 3 - SCORES.argmax(1), SCORES.argmax(1))


class Knowing(nn.Module):
    """A teacher that is right; the labels of the task often are not."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Tanh()
        self.out = nn.Linear(8, 4, bias=False)
        self.out.weight = nn.Parameter(TRUTH.t().contiguous())
        self.rest = nn.Dropout(0.5)

    def forward(self, x):
        return self.out(self.rest(self.hidden(x)))


def student(width=16):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 4))


def batches(count=60):
    return [
        (INPUTS[rows], NOISY[rows])
        for step in range(count)
        for rows in [slice(step * 64 % 256, step * 64 % 256 + 64)]
    ]


def error(model):
    """Against the truth, on inputs that nobody has trained with."""
    with torch.no_grad():
        right = SCORES[256:].argmax(1)
        return float(functional.cross_entropy(model(INPUTS[256:]), right))


def taught(**options):
    model = student(width=8)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    losses = distill(
        model, Knowing(), batches(), functional.cross_entropy, optimizer=optimizer, **options
    )
    assert len(losses) == 60
    return model


def test_a_student_learns_more_with_a_teacher_than_without():
    plain = error(taught(logits=0))
    assert error(taught(temperature=2.0)) < 0.8 * plain
    assert error(taught(temperature=2.0, features={"1": "hidden"})) < 0.8 * plain


def test_a_student_computes_on_the_way_what_it_is_shown():
    shown = torch.tanh(INPUTS[256:])
    plain, shown_to = taught(logits=0), taught(logits=0, features={"1": "hidden"})
    with torch.no_grad():
        before, after = (apart(model[:2](INPUTS[256:]), shown) for model in (plain, shown_to))
    assert after < 0.2 * before


def test_nothing_added_is_plain_training():
    one, other = student(), student()
    distill(one, Knowing(), batches(5), functional.cross_entropy, logits=0)
    optimizer = torch.optim.Adam(other.parameters())
    for inputs, targets in batches(5):
        optimizer.zero_grad()
        functional.cross_entropy(other(inputs), targets).backward()
        optimizer.step()
    for mine, plain in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, plain)


def test_divergence_is_what_the_formula_says():
    one, other = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[0.0, 3.0, 1.0]])
    p, q = (other / 3).softmax(1), (one / 3).softmax(1)
    assert float(divergence(one, other, 3.0)) == pytest.approx(float((p * (p / q).log()).sum() * 9))
    assert float(divergence(one, one, 3.0)) == pytest.approx(0.0, abs=1e-6)


def test_classes_of_maps_are_the_second_dimension():
    maps, right = torch.randn(2, 5, 3, 3), torch.randn(2, 5, 3, 3)
    rows = divergence(*(t.movedim(1, -1).reshape(-1, 5) for t in (maps, right)), 2.0)
    assert float(divergence(maps, right, 2.0)) == pytest.approx(float(rows), rel=1e-5)


def test_features_are_apart_by_a_share_of_their_size():
    shown = torch.tensor([[3.0, 4.0]])
    assert float(apart(torch.zeros(1, 2), shown)) == 1.0
    assert float(apart(10 * torch.zeros(1, 2), 10 * shown)) == 1.0
    assert float(apart(shown, shown)) == 0.0


@pytest.mark.parametrize("shape", [(2, 6, 5, 5), (2, 7, 6), (2, 6)])
def test_other_widths_are_mapped(shape):
    class Wide(nn.Module):
        def __init__(self, width, place):
            super().__init__()
            self.part = nn.Identity()
            self.factor = nn.Parameter(torch.ones(()))
            self.width, self.place = width, place

        def forward(self, x):
            return self.part(self.factor * x.narrow(self.place, 0, self.width)).flatten(1).sum(1)

    place = 1 if len(shape) == 4 else len(shape) - 1
    narrow, wide = Wide(3, place), Wide(6, place)
    losses = distill(
        narrow, wide, [(torch.randn(shape), None)] * 200, lambda *_: narrow.factor * 0,
        logits=0, features={"part": "part"}, optimizer=torch.optim.SGD(narrow.parameters(), 0.01),
    )  # fmt: skip
    assert losses[-1] < 0.8 * losses[0]  # the map learns what it can


def test_the_teacher_and_the_callers_random_numbers_stay():
    teacher = Knowing().train()
    teacher.out.eval()
    before = copy.deepcopy(teacher.state_dict())
    model = student(width=12)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    distill(model, teacher, batches(3), functional.cross_entropy, features={"0": "hidden"})
    assert torch.equal(torch.get_rng_state(), state)
    assert teacher.training
    assert not teacher.out.training
    assert all(each.grad is None for each in teacher.parameters())
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert not teacher.hidden._forward_hooks
    assert not model[0]._forward_hooks


def test_hooks_are_gone_when_training_fails():
    model, teacher = student(), Knowing()

    def fail(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        distill(model, teacher, batches(1), fail, features={"0": "hidden"})
    assert not teacher.hidden._forward_hooks
    assert teacher.training


def test_a_layer_that_is_not_called_is_said():
    class Skipping(Knowing):
        def __init__(self, calls):
            super().__init__()
            self.calls, self.extra = calls, nn.Linear(8, 8)

        def forward(self, x):
            self.calls -= 1
            if self.calls >= 0:
                self.extra(x)
            return super().forward(x)

    for calls in (0, 1):
        with pytest.raises(UsageError, match=r"'extra', which Skipping does not call for this"):
            distill(
                student(), Skipping(calls), batches(2), functional.cross_entropy,
                features={"0": "extra"},
            )  # fmt: skip


def test_what_cannot_work_is_said():
    model, loss = student(), functional.cross_entropy
    with pytest.raises(UsageError, match="one model"):
        distill(model, model, batches(1), loss)
    with pytest.raises(UsageError, match="temperature is 0"):
        distill(model, Knowing(), batches(1), loss, temperature=0)
    with pytest.raises(UsageError, match=r"'nowhere', which is no part of Sequential"):
        distill(model, Knowing(), batches(1), loss, features={"nowhere": "hidden"})
    with pytest.raises(UsageError, match="logits=0"):
        divergence({"logits": torch.ones(1, 2)}, torch.ones(1, 2), 1.0)
    deep = nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Flatten(), nn.Linear(8, 4))
    with pytest.raises(UsageError, match="only one dimension may differ"):
        distill(deep, Knowing(), batches(1), loss, features={"0": "hidden"})
