"""What is wrong with a variant is found, and nothing is wrong with the model itself."""

import re
import time
import types
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.changes.layout import ChannelsLast
from slipstream.infer.gates.contract import contract
from slipstream.infer.gates.elsewhere import elsewhere
from slipstream.infer.gates.metric import drop_of, is_worse, judge, scores_of
from slipstream.infer.gates.numeric import numeric
from slipstream.infer.gates.reference import Reference, reference_of
from slipstream.infer.inputs import inputs_of, other_values
from slipstream.infer.subject import Subject, copied
from tests.infer.models import zoo


def reference(model: nn.Module, example: Any, also: tuple[Any, ...] = ()) -> Reference:
    return reference_of(Subject(model.eval(), inputs_of(example)), [inputs_of(e) for e in also])


@pytest.mark.parametrize("name", zoo())
def test_a_model_passes_its_own_gates(name: str) -> None:
    model, example = zoo()[name]
    known = reference(model, example)
    assert contract(copied(model), known) is None
    why, error = numeric(copied(model), known, "exact")
    assert why is None
    assert error.rms == error.eager_rms < 1e-5


LINEAR = nn.Linear(4, 3)
PICTURE = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
_buffer = torch.empty(5, 3)


def _overwrites(x: torch.Tensor) -> torch.Tensor:
    return _buffer[: len(x)].copy_(LINEAR(x))


def _changes_input(x: torch.Tensor) -> torch.Tensor:
    y = LINEAR(x)
    x.zero_()
    return y


def _fails_elsewhere(x: torch.Tensor) -> torch.Tensor:
    if len(x) != 5:
        raise ValueError("only 5")
    return LINEAR(x)


BROKEN: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "overwritten": (_overwrites, "changes when the model is called again"),
    "inputs": (_changes_input, "changes its inputs"),
    "shape": (lambda x: LINEAR(x)[:, :2], r"\(5, 2\) float32 on cpu, the model gives \(5, 3\)"),
    "type": (lambda x: LINEAR(x).double(), "float64"),
    "nesting": (lambda x: (LINEAR(x),), r"gives \(tensor\(\[\]\),\), the model gives tensor"),
    "infinite": (lambda x: LINEAR(x) / 0, "15 of 15 values are no finite numbers"),
    "one nan": (lambda x: LINEAR(x).index_fill(0, torch.tensor([1]), torch.nan), "3 of 15"),
    "other sizes": (_fails_elsewhere, r"fails for inputs of \(2, 4\): ValueError: only 5"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_contracts(name: str) -> None:
    known = reference(LINEAR, PICTURE, (PICTURE[:2],))
    broken, words = BROKEN[name]
    why = contract(broken, known)
    assert why is not None
    assert re.search(words, why), why


def test_what_a_dataclass_holds_is_compared() -> None:
    @dataclass
    class Found:
        scores: torch.Tensor
        label: str

    class Finds(nn.Module):
        def forward(self, x: torch.Tensor) -> Found:
            return Found(LINEAR(x), "cat")

    known = reference(Finds(), PICTURE)
    assert contract(Finds(), known) is None
    assert numeric(Finds(), known, "exact")[0] is None
    assert numeric(lambda x: Found(LINEAR(x) + 1, "cat"), known, "exact")[0] is not None
    assert contract(lambda x: Found(LINEAR(x), "dog"), known) is not None


def test_what_cannot_be_compared_is_told() -> None:
    class Own:
        pass

    class Gives(nn.Module):
        def forward(self, x: torch.Tensor) -> Own:
            return Own()

    with pytest.raises(UsageError, match="gives a Own, which cannot be compared"):
        reference(Gives(), PICTURE)


def test_views_of_inputs_are_no_results_that_change() -> None:
    identity = nn.Identity()
    assert contract(identity, reference(identity, PICTURE)) is None


WRONG: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "finite garbage": lambda x: torch.randn(5, 3, generator=torch.Generator().manual_seed(1)),
    "remembered": lambda x: LINEAR(PICTURE),
    "a little off": lambda x: LINEAR(x) * 1.0001,
    "one value": lambda x: LINEAR(x).index_fill(0, torch.tensor([1]), 0.3),
    "half": lambda x: LINEAR(x).bfloat16().float(),
    "rows in another order": lambda x: LINEAR(x).flip(0),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers_of_the_right_form(name: str) -> None:
    known = reference(LINEAR, PICTURE)
    assert contract(WRONG[name], known) is None
    why, _ = numeric(WRONG[name], known, "exact")
    assert why is not None and "error" in why


def test_fewer_bits_are_mixed_and_garbage_is_not() -> None:
    known = reference(LINEAR, PICTURE)
    why, error = numeric(WRONG["half"], known, "mixed")
    assert why is None
    assert 1e-5 < error.rms < 0.01
    assert error.agreement == 1.0
    for name in ("finite garbage", "remembered", "rows in another order"):
        assert numeric(WRONG[name], known, "mixed")[0] is not None


def test_better_than_the_model_is_no_fault() -> None:
    exact = copied(LINEAR).double()
    why, error = numeric(lambda x: exact(x.double()).float(), reference(LINEAR, PICTURE), "exact")
    assert why is None
    assert error.rms <= error.eager_rms


def test_whole_numbers() -> None:
    class Picks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.argmax(1)

    known = reference(Picks(), PICTURE)
    assert numeric(Picks(), known, "exact")[0] is None
    assert "whole numbers" in str(numeric(lambda x: x.argmin(1), known, "exact")[0])


def test_a_model_in_double_precision_is_not_computed_in_single() -> None:
    class Single(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = copied(model).float()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.model(x.float())
            return found.double()

    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4)).double().eval()
    subject = Subject(model, inputs_of(torch.randn(8, 16, dtype=torch.float64)))
    why, _ = numeric(Single(model), reference_of(subject), "exact")
    assert why is not None and "error" in why
    assert numeric(copied(model), reference_of(subject), "exact")[0] is None


def test_a_model_without_double_precision_is_its_own_measure() -> None:
    class Single(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype == torch.float64:
                raise TypeError("no doubles")
            return x * 3

    known = reference(Single(), PICTURE)
    assert known.answers[0].exact is None
    assert numeric(Single(), known, "exact")[0] is None
    assert numeric(lambda x: x * 3.001, known, "exact")[0] is not None


def test_scores_that_are_the_same_pass_with_enough_of_them() -> None:
    right = [1.0] * 90 + [0.0] * 10
    assert judge(drop_of(right * 10, right * 10), 0.01) is None
    few = judge(drop_of(right, right), 0.01)
    assert few is not None and few.startswith("not shown")  # 3 of 100 may still be worse
    assert str(judge(drop_of(right[:20], right[:20]), 0.5)).startswith("not shown: 20 samples")


def test_scores_that_drop_fail() -> None:
    before = [1.0] * 1000
    after = [1.0] * 950 + [0.0] * 50
    found = drop_of(before, after)
    assert found.low < 0.05 < found.high
    assert "score drops by" in str(judge(found, 0.01))
    assert judge(found, 0.1) is None
    assert drop_of(after, before).mean == pytest.approx(-0.05)


def test_scores_that_are_no_numbers_fail() -> None:
    before = [1.0] * 200
    for after in ([float("nan")] * 200, [1.0] * 199 + [float("nan")], [float("-inf")] * 200):
        assert "not all finite" in str(judge(drop_of(before, after), 0.01))
        assert "not all finite" in str(is_worse(drop_of(before, after), 0.01))


def test_what_is_proved_by_its_numbers_fails_only_where_it_surely_is_worse() -> None:
    before = [1.0] * 100
    assert is_worse(drop_of(before, before), 0.01) is None  # not shown, and not needed
    assert is_worse(drop_of(before, [1.0] * 98 + [0.0] * 2), 0.01) is None
    assert "score drops by" in str(is_worse(drop_of(before, [0.0] * 100), 0.01))


def test_one_tensor_for_several_arguments_is_timed_as_one() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    example = inputs_of({"a": x, "b": [x, y], "c": x})
    for inputs in (example, other_values(example, 0)):
        made = inputs.copy_shared_as(example).kwargs
        assert made["a"] is made["b"][0] is made["c"]
        assert made["b"][1] is not made["a"] and made["a"] is not x
        assert torch.equal(made["b"][1], inputs.kwargs["b"][1])


def test_zeros_have_other_values_beside_them() -> None:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU())
    known = reference(model, torch.zeros(4, 8))
    assert numeric(lambda x: torch.zeros(4, 8), known, "exact")[0] is not None
    assert numeric(copied(model), known, "exact")[0] is None


def test_many_scores_take_no_time() -> None:
    before = [1.0] * 40_000
    after = [0.0] * 400 + [1.0] * 39_600
    began = time.perf_counter()
    drop = drop_of(before, after)
    assert time.perf_counter() - began < 20
    assert drop.mean == pytest.approx(0.01)
    assert 0.0085 < drop.low < drop.mean < drop.high < 0.0115


def test_a_metric_gives_a_score_per_sample() -> None:
    batches = [(PICTURE, torch.zeros(5, dtype=torch.long))] * 3
    scores = scores_of(LINEAR, lambda m, b: (m(b[0]).argmax(1) == b[1]).float(), batches)
    assert len(scores) == 15
    with pytest.raises(UsageError, match="one score per sample"):
        scores_of(LINEAR, lambda m, b: 0.5, batches)


class _Layer(nn.Module):
    def __init__(self, behind: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 6)
        self.behind = behind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self.layer(x))


def _masked(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    hidden = torch.arange(6) % 3 == 0
    return lambda y: y.masked_fill(hidden, value)


class _Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids) * torch.arange(ids.shape[1])[:, None]


class _Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weights = (self.layer(x) @ x.transpose(-2, -1)).masked_fill(~mask, -1e9)
        return weights.softmax(-1) @ x


_ROWS = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
_FLAGS = (torch.randn(2, 4, 8), torch.ones(2, 1, 4, dtype=torch.bool))
BLIND: dict[str, tuple[nn.Module, Any, Callable[[Any, Any], Any]]] = {
    "mask of -1e9": (_Layer(_masked(-1e9)), _ROWS, lambda y, _: torch.where(y < -1e8, y, -y)),
    "mask of -inf": (_Layer(_masked(-torch.inf)), _ROWS, lambda y, _: y.nan_to_num(neginf=5.0)),
    "random": (_Layer(lambda y: y + torch.randn_like(y)), _ROWS, lambda y, _: y * 0),
    "chaotic": (_Layer(lambda y: torch.sin(1e9 * y)), _ROWS, lambda y, _: y * 0),
    "one row of numbers": (_Looked(), torch.arange(9)[None], lambda y, first: first),
    "flags": (_Hidden(), _FLAGS, lambda y, first: first),
}


@pytest.mark.parametrize("name", BLIND)
@pytest.mark.parametrize("kind", ["exact", "mixed"])
def test_gates_see_what_is_wrong_behind_large_odd_and_constant_numbers(
    name: str, kind: Any
) -> None:
    model, example, wrong = BLIND[name]
    known = reference(model, example)
    first = known.answers[0].eager

    class Wrong(nn.Module):
        def forward(self, *args: Any) -> Any:
            return wrong(model(*args), first)

    assert numeric(model, known, kind)[0] is None
    made = Wrong()
    assert contract(made, known) or numeric(made, known, kind)[0]


def test_complex_numbers_may_be_rounded() -> None:
    model = _Layer(torch.fft.fft)
    known = reference(model, _ROWS)

    class Rounded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return model(x) * (1 + 1e-7)

    assert numeric(Rounded(), known, "exact")[0] is None
    assert numeric(_Layer(torch.fft.ifft), known, "exact")[0]


def test_inputs_of_other_shapes_that_fail_are_named() -> None:
    with pytest.raises(UsageError, match=r"Linear fails itself with also\[0\] of \(5, 9\)"):
        reference(nn.Linear(8, 2), _ROWS, (torch.ones(5, 9),))


class Cached(nn.Module):
    """As attention that keeps what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache.mul_(0.9).add_(x)
        return self.conv(cache)


def test_a_model_that_changes_its_inputs_has_no_variants() -> None:
    model = Cached()
    known = reference(model, (torch.randn(2, 3, 8, 8), torch.zeros(2, 3, 8, 8)))
    for variant in (copied(model), ChannelsLast(copied(model))):
        assert "the model changes its inputs" in (contract(variant, known) or "")


def test_results_can_be_viewed_as_those_of_the_model() -> None:
    model, example = nn.Conv2d(3, 4, 3).eval(), torch.randn(2, 3, 8, 8)
    known = reference(model, example)
    made = ChannelsLast(copied(model))
    assert contract(made, known) is None
    assert made(example).view(2, -1).shape == (2, 144)
    assert "not contiguous" in (
        contract(made.model.to(memory_format=torch.channels_last), known) or ""
    )


def test_results_are_of_the_same_class() -> None:
    class Box(torch.Tensor):
        pass

    class Boxes(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return LINEAR(x).as_subclass(Box)

    known = reference(Boxes(), PICTURE)
    assert contract(Boxes(), known) is None
    why = contract(LINEAR, known)
    assert why is not None and "the model gives Box of (5, 3)" in why


@dataclass
class Items(OrderedDict[str, torch.Tensor]):
    """As results of some libraries are: with items beside its fields."""

    logits: torch.Tensor

    def __post_init__(self) -> None:
        self["logits"] = self.logits


def test_a_dataclass_with_items_of_its_own_is_refused() -> None:
    class Giving(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return Items(LINEAR(x))

    with pytest.raises(UsageError, match="gives a Items, which cannot be compared"):
        reference(Giving(), PICTURE)


def test_masks_of_ones_get_zeros() -> None:
    given = inputs_of((torch.ones(4, 8, dtype=torch.long), torch.arange(4)))
    mask, order = other_values(given, seed=0).args
    assert 0 < mask.sum() < 32 and sorted(order.tolist()) == [0, 1, 2, 3]


class Angle(nn.Module):
    def forward(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.atan2(y, x)


class Masking(nn.Module):
    """Attention that gives nothing where all is masked."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=keep[:, None, :])


def test_zeros_among_the_numbers_are_tried() -> None:
    own = torch.Generator().manual_seed(0)
    given = torch.randn(4, 8, generator=own), torch.randn(4, 8, generator=own)
    known = reference(Angle(), given)
    assert elsewhere(Angle(), known) is None

    def other(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.where((y == 0) & (x < 0), -torch.pi, torch.atan2(y, x))

    assert numeric(other, known, "exact")[0] is None
    assert "far from the example" in str(elsewhere(other, known))


@pytest.mark.parametrize("kind", [torch.bool, torch.int64])
def test_samples_of_which_all_is_masked_are_tried(kind: torch.dtype) -> None:
    own = torch.Generator().manual_seed(0)
    given = torch.randn(4, 12, 16, generator=own), torch.ones(4, 12, dtype=kind)

    class Kept(Masking):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            return super().forward(x, keep.bool())

    known = reference(Kept(), given)
    assert elsewhere(Kept(), known) is None

    def other(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        found = Kept()(x, keep)
        return torch.where(keep.bool().any(1)[:, None, None], found, x.mean(1, keepdim=True))

    assert numeric(other, known, "exact")[0] is None
    assert "far from the example" in str(elsewhere(other, known))


@pytest.mark.parametrize("how", ["function", "nested", "default", "method"])
def test_a_forward_that_calls_the_very_model_is_no_part_of_a_copy(how: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    own = model.forward
    if how == "function":
        model.forward = lambda x: own(x) + 0  # type: ignore[method-assign]
    elif how == "nested":
        model.forward = torch.autocast("cpu", torch.bfloat16)(own)  # type: ignore[method-assign]
    elif how == "default":
        model.forward = lambda x, own=own: own(x)  # type: ignore[method-assign]
    else:
        model.forward = types.MethodType(lambda self, x: self[0](x), model)  # type: ignore[method-assign]
        assert copied(model)(torch.ones(1, 4)).shape == (1, 4)
        return
    with pytest.raises(UsageError, match="calls this very object"):
        copied(model)
