"""int8 by export, quantizer and compiler: real kernels, right results, judged by the task."""

import copy
import platform
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import slipstream
from slipstream.infer import known, search
from slipstream.infer.change import ENGINE, Change, Variant
from slipstream.infer.changes import pt2e
from slipstream.infer.fold import fold, folds_of
from slipstream.infer.gates.contract import contract
from slipstream.infer.gates.reference import reference_of
from slipstream.infer.inputs import Inputs
from slipstream.infer.subject import Subject

pytest.importorskip("torchao")

# Of exporters, quantizers and compilers, about themselves.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def pictures(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Stripes in noise, wide or narrow, upright or not: which of the four?"""
    own = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=own)
    images = torch.randn(count, 1, 8, 8, generator=own)
    for image, label in zip(images, labels.tolist(), strict=True):
        width = 1 + label // 2
        stripes = torch.where(torch.arange(8) % (2 * width) < width, 0.8, -0.8)
        image.add_(stripes[:, None] if label % 2 else stripes[None, :])
    return images, labels


def accuracy(model: Any, batch: Any) -> torch.Tensor:
    return (model(batch[0]).argmax(1) == batch[1]).float()


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are slower on more, the more so the busier the machine is."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    images, labels = pictures(512, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for step in range(80):
        rows = slice(step * 64 % 512, step * 64 % 512 + 64)
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def subject(trained: nn.Module) -> Subject:
    images, _ = pictures(96, seed=2)
    calls = tuple(Inputs((batch,)) for batch in images[16:].split(20))
    return Subject(trained, Inputs((images[:16],)), calls)


@pytest.fixture(scope="module")
def folded(trained: nn.Module, subject: Subject) -> nn.Module:
    model = subject.copied()
    fold(model, folds_of(model, subject.inputs))
    return model


@pytest.fixture(scope="module")
def static(subject: Subject) -> nn.Module:
    return Variant((pt2e.INT8_STATIC,)).build(subject)


def compiled_graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def test_convolutions_and_linear_layers_run_in_integer_kernels(
    subject: Subject, static: nn.Module
) -> None:
    before = compiled_graphs()
    with torch.profiler.profile() as profile:
        subject.inputs(static)
    assert compiled_graphs() == before  # by build, and once
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["onednn::qconv_pointwise"] == 2
    assert counts["onednn::qlinear_pointwise"] == 1


def test_it_can_stand_in_for_the_model_with_batches_of_any_size(
    subject: Subject, static: nn.Module
) -> None:
    others = [Inputs((pictures(count, seed=3)[0],)) for count in (1, 5)]
    reference = reference_of(subject, others)
    assert contract(static, reference) is None
    for answer in (*reference.answers, *reference.others):
        apart = (answer.inputs(static) - answer.eager).norm() / answer.eager.norm()
        assert 0 < float(apart) < 0.05  # zero would be the model itself


def test_the_callers_settings_stay(subject: Subject, static: nn.Module) -> None:
    torch._inductor.config.freezing = False
    subject.inputs(static)
    assert torch._inductor.config.freezing is False
    with pytest.raises(Exception, match=r".*"):
        static(torch.ones(3))
    assert torch._inductor.config.freezing is False
    assert static.eval() is static  # a graph that is quantized would refuse


def test_an_example_of_one_still_means_any_batch(folded: nn.Module) -> None:
    graph, is_any_batch = pt2e._exported(folded, Inputs((torch.randn(1, 1, 8, 8),)))
    assert is_any_batch
    for count in (1, 2, 7):
        assert graph(torch.randn(count, 1, 8, 8)).shape == (count, 4)


class Fixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).reshape(3, 2, 2)


def test_a_batch_that_is_written_into_the_model_is_kept() -> None:
    example, other = Inputs((torch.randn(3, 4),)), Inputs((torch.randn(5, 4),))
    assert not pt2e._exported(Fixed().eval(), example)[1]
    graph = pt2e._converted(Fixed().eval(), example, [other, example], pt2e._x86(False))
    assert pt2e._quantized_weights(graph) == 1
    with pytest.raises(RuntimeError, match="none of 1 calls to calibrate with has the form"):
        pt2e._converted(Fixed().eval(), example, [other], pt2e._x86(False))


class Twice(nn.Module):
    """What the convolution gives goes into the batch norm, and past it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.norm.running_mean = torch.full((4,), 3.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        between = self.conv(x)
        return torch.cat([self.norm(between), between])


def apart(model: nn.Module, changed: nn.Module) -> float:
    inputs = Inputs((pictures(8, seed=4)[0],))
    graph = pt2e._converted(changed, inputs, [inputs], pt2e._x86(False))
    right = inputs(model)
    return float((inputs(graph) - right).norm() / right.norm())


def test_a_batch_norm_that_cannot_be_folded_is_not() -> None:
    model = Twice().eval()
    scaled = copy.deepcopy(model)
    pt2e._scale_instead(scaled)
    assert not isinstance(scaled.norm, nn.BatchNorm2d)
    assert apart(model, scaled) < 0.02


@pytest.mark.long
def test_a_batch_norm_that_is_a_function_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Twice().eval()
    assert apart(model, model) < 0.02
    monkeypatch.setattr(pt2e, "_keep_apart", lambda graph: None)
    assert apart(model, model) > 0.5  # what torchao does by itself


def test_a_model_of_which_nothing_is_quantized_is_refused(folded: nn.Module) -> None:
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer

    inputs = Inputs((torch.randn(2, 1, 8, 8),))
    with pytest.raises(RuntimeError, match="quantized no operator"):
        pt2e._int8(folded, inputs, [inputs], X86InductorQuantizer())


def test_a_model_that_is_quantized_in_name_only_is_refused(
    folded: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = Inputs((torch.randn(2, 1, 8, 8),))
    monkeypatch.setattr(pt2e, "Frozen", _Uncompiled)
    with pytest.raises(RuntimeError, match="no integer kernel of 3 int8 operators"):
        pt2e._int8(folded, inputs, [inputs], pt2e._x86(False))


class _Uncompiled:
    def __init__(self, graph: Any, is_dynamic: bool | None) -> None:
        self.graph = graph

    def __call__(self, x: torch.Tensor) -> Any:
        return self.graph(x)


def test_the_quantizer_is_one_that_gives_integer_kernels(static: nn.Module) -> None:
    if platform.machine() == "x86_64":
        assert pt2e._quantizer(False) is pt2e._x86
    assert pt2e._quantizer(False) in (pt2e._x86, pt2e._arm)


def test_dynamic_ranges_are_for_linear_layers(folded: nn.Module) -> None:
    inputs = Inputs((pictures(8, seed=5)[0],))
    graph = pt2e._converted(folded, inputs, [inputs], pt2e._x86(True))
    names = [str(node.target) for node in graph.graph.nodes]
    assert pt2e._quantized_weights(graph) == 1
    assert sum("choose_qparams" in name for name in names) == 1


def test_layers_of_a_transformer_are_quantized() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    inputs = Inputs((torch.randn(3, 5, 16),))
    graph = pt2e._converted(layer, inputs, [inputs], pt2e._x86(False))
    assert pt2e._quantized_weights(graph) >= 2  # behind attention


def test_why_it_cannot_be_tried_is_said(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Subject(nn.ReLU(), subject.inputs, subject.calibration)
    assert pt2e.INT8_STATIC.why_not(plain) == "there is no convolution and no linear layer"
    assert "linear layers hold" in (pt2e.INT8_DYNAMIC.why_not(subject) or "")
    heavy = Subject(nn.Linear(8, 8), Inputs((torch.ones(1, 8),)))
    assert pt2e.INT8_DYNAMIC.why_not(heavy) is None
    unseen = Subject(subject.model, subject.inputs)
    assert "nothing to calibrate with" in (pt2e.INT8_STATIC.why_not(unseen) or "")
    assert pt2e.INT8_STATIC.why_not(subject) is None
    monkeypatch.setattr("slipstream.infer.changes.torchao.find_spec", lambda name: None)
    assert "pip install torchao" in (pt2e.INT8_STATIC.why_not(subject) or "")


# The whole way, by optimize_model.


def _two_bits(model: nn.Module, subject: Subject) -> nn.Module:
    with torch.no_grad():
        for each in model.parameters():
            step = each.abs().max() / 1.5
            each.copy_(((each / step - 0.5).round().clamp(-2, 1) + 0.5) * step)
    return model


TWO_BITS = Change("two bits", "lossy", ENGINE, _two_bits)
HARMLESS = Change("harmless", "lossy", ENGINE, lambda model, subject: model)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A search with these changes alone, and short."""

    def limit(*changes: Change) -> None:
        for stage in (
            "QUICK",
            "COMPILED",
            "PRECISIONS",
            "QUICKLY_QUANTIZED",
            "LAYOUTS",
            "LIBRARIES",
        ):
            monkeypatch.setattr(known, stage, ())
        monkeypatch.setattr(known, "QUANTIZED", changes)
        monkeypatch.setattr(search, "thread_counts", list)
        monkeypatch.setattr(search, "_FINAL_S", 0.5)

    return limit


def test_int8_is_admitted_by_the_task_and_two_bits_are_not(trained: nn.Module, only: Any) -> None:
    only(pt2e.INT8_STATIC, TWO_BITS)
    images, labels = pictures(960, seed=6)
    data = list(zip(images.split(80), labels.split(80), strict=True))
    asked: dict[int, set[int]] = {}

    def metric(model: Any, batch: Any) -> torch.Tensor:
        number = next(n for n, known_batch in enumerate(data) if known_batch is batch)
        asked.setdefault(number, set()).add(id(model))
        return accuracy(model, batch)

    state = torch.get_rng_state()
    found = slipstream.optimize_model(
        trained, images[:16], accuracy="lossy", metric=metric, data=data, max_drop=0.02
    )
    rows = {row.name: row for row in found.rows}
    int8 = rows["int8 static"]
    assert int8.state in ("won", "slower"), int8.why
    assert int8.drop is not None
    assert "640 samples" in int8.drop
    assert int8.ms is not None
    bad = rows["two bits"]
    assert bad.state == "rejected"
    assert bad.why.startswith("score drops by")
    assert " to " in bad.why
    # What calibrates is never what judges: only the model itself has seen it.
    assert all(len(asked[number]) == 1 for number in range(4))
    assert all(len(asked[number]) > 1 for number in range(4, 12))
    assert torch.equal(torch.get_rng_state(), state)


def test_too_few_samples_never_pass(trained: nn.Module, only: Any) -> None:
    only(HARMLESS)
    images, labels = pictures(60, seed=7)
    data = list(zip(images.split(10), labels.split(10), strict=True))
    found = slipstream.optimize_model(
        trained, images[:16], accuracy="lossy", metric=accuracy, data=data, max_drop=0.5
    )
    row = next(row for row in found.rows if row.name == "harmless")
    assert row.state == "rejected"
    assert row.why.startswith("not shown: 40 samples")
    assert not found.is_changed
