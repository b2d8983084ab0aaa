"""Pruned models: smaller, of the same form, returned only if faster and as good."""

import builtins
import importlib.util

import pytest
import torch
from torch import nn

from slipstream import timing
from slipstream.errors import UsageError
from slipstream.infer.compress import compress, distill
from slipstream.infer.compress import timed as timed_module
from slipstream.infer.compress.heads import output_layers
from slipstream.infer.compress.prune import pruned
from slipstream.infer.compress.result import CompressedRow
from slipstream.infer.compress.search import _count
from slipstream.infer.inputs import Inputs, inputs_of
from slipstream.infer.subject import Subject
from slipstream.timing import Ratio
from tests.clock import replace_clock, sleep

pytest.importorskip("torch_pruning")


@pytest.fixture(autouse=True)
def short_and_alone(monkeypatch):
    """Timing takes half a second; tensors this small are slower on more threads than one."""
    monkeypatch.setattr(timed_module, "_TIMED_S", 0.5)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.two = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.two(torch.relu(self.norm(self.one(x)))))


class Network(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        sleep(0.01 * self.stem.out_channels)
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def network(width=32):
    torch.manual_seed(0)
    return Network(width)


def pictures(count, seed):
    """Bright or dark, in noise."""
    own = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=own)
    noise = torch.randn(count, 1, 12, 12, generator=own)
    return noise + (labels * 2 - 1.0).reshape(-1, 1, 1, 1) * 0.5, labels


IMAGES, LABELS = pictures(256, seed=1)
DATA = [tuple(each) for each in zip(*(t.split(64) for t in pictures(320, seed=2)), strict=True)]
EXAMPLE = IMAGES[:4]


def accuracy(model, batch):
    return (model(batch[0]).argmax(1) == batch[1]).float()


def fit(model, steps=12):
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    model.train()
    for step in range(steps):
        rows = slice(step * 32 % 256, step * 32 % 256 + 32)
        loss = nn.functional.cross_entropy(model(IMAGES[rows]), LABELS[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def trained():
    return fit(network())


def parameters(model):
    return sum(each.numel() for each in model.parameters())


def test_half_of_the_channels_are_gone_and_the_answers_have_their_form(trained):
    made = pruned(trained, Inputs((EXAMPLE,)), 0.5, 8, ()).eval()
    assert made.stem.out_channels == 16
    assert made.head.out_features == 2
    assert parameters(made) < parameters(trained) / 2
    assert made(EXAMPLE).shape == (4, 2)
    assert made(IMAGES[:7]).shape == (7, 2)


def test_both_sides_of_a_residual_keep_the_same_channels(trained):
    made = pruned(trained, Inputs((EXAMPLE,)), 0.5, 8, ())
    for block in made.blocks:
        assert block.two.out_channels == made.stem.out_channels == block.one.in_channels
        assert block.norm.num_features == block.one.out_channels == block.two.in_channels


def test_widths_are_multiples(trained):
    for ratio, multiple, width in ((0.4, 8, 16), (0.4, 1, 19), (0.2, 8, 24)):
        made = pruned(trained, Inputs((EXAMPLE,)), ratio, multiple, ())
        assert made.stem.out_channels == width, (ratio, multiple)


def test_layers_that_would_vanish_stay():
    made = pruned(network(12), Inputs((EXAMPLE,)), 0.5, 8, ())
    assert made.stem.out_channels == 12
    assert made.eval()(EXAMPLE).shape == (4, 2)


def test_what_is_ignored_stays(trained):
    made = pruned(trained, Inputs((EXAMPLE,)), 0.5, 8, ["blocks.0"])
    assert made.blocks[0].one.out_channels == 32
    assert made.blocks[1].one.out_channels == 16
    assert made.stem.out_channels == 32  # one side of a sum with blocks.0


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 32)
        self.classes = nn.Linear(32, 3)
        self.boxes = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        x = torch.relu(self.body(x))
        return {"boxes": self.boxes(x).sigmoid(), "classes": self.classes(x)}


def test_layers_that_make_results_are_found():
    inputs = Inputs((torch.ones(2, 16),))
    assert sorted(output_layers(TwoHeads().eval(), inputs)) == ["boxes.2", "classes"]
    made = pruned(TwoHeads(), inputs, 0.5, 1, ())
    assert made.body.out_features == made.boxes[0].out_features == 16
    assert {name: each.shape[1] for name, each in made(torch.ones(2, 16)).items()} == {
        "boxes": 4,
        "classes": 3,
    }


def test_layers_of_other_kinds_make_results_as_well():
    up = nn.Sequential(nn.Conv1d(8, 32, 3), nn.ReLU(), nn.ConvTranspose1d(32, 16, 4))
    assert output_layers(up.eval(), Inputs((torch.ones(1, 8, 9),))) == ["2"]
    made = pruned(up, Inputs((torch.ones(1, 8, 9),)), 0.5, 8, ())
    assert (made[0].out_channels, made[2].out_channels) == (16, 16)


def test_a_weight_of_the_model_itself_keeps_no_layer():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.weight = nn.Linear(16, 32), nn.Parameter(torch.ones(2, 32))

        def forward(self, x):
            return nn.functional.linear(self.body(x), self.weight)

    assert output_layers(Own().eval(), Inputs((torch.ones(1, 16),))) == []


def test_without_a_graph_it_is_the_last_layer_that_makes_the_results():
    class Unexportable(TwoHeads):
        def forward(self, x):
            x = self.body(x) if float(x.sum()) > 0 else self.body(-x)
            return self.classes(x)

    assert output_layers(Unexportable().eval(), Inputs((torch.ones(2, 16),))) == ["classes"]


def test_arguments_by_name_reach_the_model():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(8, 32), nn.Linear(32, 2)

        def forward(self, *, x, scale):
            return self.two(self.one(x) * scale)

    made = pruned(Named(), Inputs((), {"x": torch.ones(3, 8), "scale": torch.ones(1)}), 0.5, 8, ())
    assert made.one.out_features == 16


def test_frozen_parameters_stay_frozen(trained):
    model = network()
    model.stem.requires_grad_(False)
    made = pruned(model, Inputs((EXAMPLE,)), 0.5, 8, ())
    assert not made.stem.weight.requires_grad
    assert made.head.weight.requires_grad
    assert made.training


@pytest.mark.slow
def test_a_faster_model_that_is_as_good_wins(trained, monkeypatch):
    replace_clock(monkeypatch, timing)
    found = compress(trained, IMAGES[:64], 0.5, fit, accuracy, DATA, max_drop=0.05)
    before, after = found.rows
    assert after.state == "won", after.why
    assert found.model is found.pruned
    assert not found.model.training
    assert after.macs < before.macs / 2
    assert after.parameters < before.parameters / 2
    assert after.ms < before.ms
    assert after.speed.low > 1
    assert before.score.low <= before.score.mean <= before.score.high
    assert "320 samples" in after.drop
    text = str(found)
    assert "MACs" in text
    assert "50% pruned" in text
    assert found.as_dict()["rows"][1]["state"] == "won"


def test_a_model_that_learns_nothing_is_rejected_by_its_score(trained):
    def forget(model):
        nn.init.zeros_(model.head.weight)

    found = compress(trained, EXAMPLE, 0.5, forget, accuracy, DATA)
    after = found.rows[1]
    assert after.state == "rejected"
    assert after.why.startswith("score drops by")
    assert "to" in after.why
    assert found.model is trained
    assert found.pruned is not trained
    assert after.ms is not None


def test_too_few_samples_show_nothing_and_nothing_is_trained(trained):
    def train(model):
        raise AssertionError

    found = compress(trained, EXAMPLE, 0.5, train, accuracy, [(DATA[0][0][:9], DATA[0][1][:9])])
    assert found.rows[1].state == "rejected"
    assert found.rows[1].why.startswith("not shown: 9 samples")
    assert found.model is trained
    none = compress(trained, EXAMPLE, 0.5, lambda model: None, accuracy, [])
    assert none.rows[1].why.startswith("not shown: 0 samples")
    assert "nan" not in str(none)


def test_a_metric_that_scores_some_samples_alone_is_told(trained):
    sizes = iter([60, 50])

    def metric(model, batch):
        return torch.ones(next(sizes))

    with pytest.raises(UsageError, match="60 scores of the model and 50 of its variant"):
        compress(trained, EXAMPLE, 0.5, lambda model: None, metric, DATA[:1])


def test_the_model_wins_where_the_pruned_one_is_not_surely_faster(trained, monkeypatch):
    slow = timed_module.Timed(1.0, 0.99, Ratio(1, 1, 1), Ratio(1.01, 0.97, 1.06), 1.02)
    monkeypatch.setattr("slipstream.infer.compress.search.timed", lambda *args: slow)
    found = compress(trained, EXAMPLE, 0.5, fit, accuracy, DATA, max_drop=0.2)
    assert found.rows[1].state == "slower"
    assert "1.01 x (0.97 to 1.06)" in found.rows[1].why
    assert found.model is trained


def test_a_model_is_not_surely_faster_than_itself(trained):
    from slipstream.infer.gates.reference import reference_of
    from slipstream.infer.subject import Subject

    reference = reference_of(Subject(trained, Inputs((EXAMPLE,))))
    assert not timed_module.timed(trained, trained, reference, None).is_surely_faster


def test_operations_of_attention_are_counted():
    layer = nn.TransformerEncoderLayer(16, 2, 64, batch_first=True)
    enabled = torch.backends.mha.get_fastpath_enabled()
    found = compress(layer, torch.ones(2, 5, 16), 0.5, lambda made: None, accuracy, [])
    assert torch.backends.mha.get_fastpath_enabled() == enabled
    # in and out of attention, both linear layers; and what is made of queries, keys and values
    assert found.rows[0].macs >= 2 * 5 * (4 * 16 * 16 + 2 * 16 * 64)
    assert found.rows[1].macs < found.rows[0].macs


def test_operations_of_attention_and_of_recurrent_layers_are_counted_exactly():
    class Attention(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    def macs(model, example):
        row, subject = CompressedRow("", "model"), Subject(model.eval(), Inputs((example,)))
        _count(row, model, subject)
        return row.macs

    assert macs(Attention(), torch.ones(2, 4, 64, 16)) == 2 * (2 * 4 * 64 * 64 * 16)
    lstm = nn.LSTM(8, 16, num_layers=2, bidirectional=True)
    matrices = sum(each.numel() for each in lstm.parameters() if each.dim() == 2)
    assert macs(lstm, torch.ones(5, 3, 8)) == 5 * 3 * matrices


class Heads(nn.Module):
    """Attention by hand: a width that is written into the model."""

    def __init__(self):
        super().__init__()
        self.values, self.out = nn.Linear(32, 32), nn.Linear(32, 2)

    def forward(self, x):
        return self.out(self.values(x).reshape(len(x), 4, 8).flatten(1))


def test_what_cannot_be_pruned_is_a_row_and_not_trained():
    def train(model):
        raise AssertionError("there is nothing to train")

    found = compress(Heads(), torch.ones(4, 32), 0.5, train, accuracy, [])
    assert found.rows[1].state == "failed"
    assert "ignored" in found.rows[1].why
    assert found.pruned is None
    narrow = compress(network(4), EXAMPLE, 0.5, train, accuracy, DATA)
    assert narrow.rows[1].why.startswith("no layer has channels to give")
    assert "failed" in str(narrow)


def test_the_model_and_the_callers_random_numbers_stay(trained):
    model = network().train()
    model.blocks[0].norm.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()

    def train(made):
        torch.rand(7)
        torch.set_num_threads(2)
        fit(made, 1)

    compress(model, EXAMPLE, 0.5, train, accuracy, DATA)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert model.training
    assert not model.blocks[0].norm.training
    assert all(each.grad is None for each in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_teacher_may_train_what_is_left(trained):
    batches = [(IMAGES[:64], LABELS[:64])] * 4

    def train(made):
        distill(made, trained, batches, nn.functional.cross_entropy, features={"stem": "stem"})

    found = compress(trained, EXAMPLE, 0.5, train, accuracy, DATA)
    assert found.pruned is not None
    assert found.rows[1].score.mean > 0.5


def test_errors_of_the_callers_training_are_the_callers(trained):
    def train(model):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        compress(trained, EXAMPLE, 0.5, train, accuracy, DATA)


def test_without_torch_pruning_the_line_to_type_is_said(trained, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "slipstream.infer.compress.prune.find_spec",
        lambda name: None if name == "torch_pruning" else find(name),
    )
    with pytest.raises(UsageError, match="pip install torch-pruning"):
        compress(trained, EXAMPLE, 0.5, fit, accuracy, DATA)


def test_what_cannot_work_is_said(trained):
    def message(*, model=trained, ratio=0.5, train=fit, **options):
        with pytest.raises(UsageError) as caught:
            compress(model, EXAMPLE, ratio, train, accuracy, DATA, **options)
        return str(caught.value)

    assert "ratio is 0" in message(ratio=0)
    assert "ratio is 1" in message(ratio=1)
    assert "multiple is 0" in message(multiple=0)
    assert "'nowhere'" in message(ignored=["nowhere"])
    assert "train_fn" in message(train=None)
    assert "torch.nn.Module" in message(model=builtins.print)


def test_data_may_be_read_once_only():
    found = compress(network(), EXAMPLE, 0.5, fit, accuracy, iter(DATA), max_drop=1.0)
    assert found.rows[1].score is not None


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 32)
        self.head = nn.Linear(32, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids).mean(1))  # type: ignore[no-any-return]


class TiedRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.other = (nn.Linear(32, 32) for _ in range(3))
        self.other.weight = self.one.weight
        self.last = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(self.first(x).relu()).relu()
        return self.last(self.other(x).relu())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("model", "example"),
    [(Tied(), torch.zeros(2, 5, dtype=torch.int64)), (TiedRows(), torch.randn(2, 32))],
    ids=["table and head", "rows"],
)
def test_what_is_one_weight_stays_one_or_is_told(model: nn.Module, example: torch.Tensor) -> None:
    names = ("table.weight", "head.weight") if isinstance(model, Tied) else (
        "one.weight", "other.weight")  # fmt: skip
    try:
        made = pruned(model, inputs_of(example), 0.5, 8, [])
    except ValueError as error:
        assert "are one weight" in str(error)
        return
    assert made.get_parameter(names[0]) is made.get_parameter(names[1])


def test_what_train_fn_has_broken_is_not_returned():
    def spoil(model):
        for parameter in model.parameters():
            nn.init.constant_(parameter, torch.nan)

    images, _ = pictures(64, seed=1)
    found = compress(
        network(), images[:8], 0.5, spoil, lambda model, batch: torch.ones(len(batch)), [images]
    )
    assert found.rows[1].state == "rejected"
    assert "behind train_fn it" in found.rows[1].why and "no finite numbers" in found.rows[1].why
