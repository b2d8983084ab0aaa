"""The recorded graph, the layers in it, and alternatives of the same FLOPs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from slipstream.infer.inputs import Inputs
from slipstream.infer.keeping import without_fast_path
from slipstream.infer.lint.blocks import branches, layer_of, on_same_input, rows
from slipstream.infer.lint.case import Seen
from slipstream.infer.lint.channels import next_multiple, same_product
from slipstream.infer.lint.fast_path import takes_fast_path
from slipstream.infer.lint.known import LAYER_RULES
from slipstream.infer.lint.layer import Layer, call_of
from slipstream.infer.lint.lint import lint_model
from slipstream.infer.lint.replay import Memory
from slipstream.infer.lint.trace import Trace, trace
from slipstream.infer.subject import Subject
from tests.infer import lint_models


def recorded(model: nn.Module, *args: torch.Tensor, **kwargs: torch.Tensor) -> Trace:
    return trace(model.eval(), Inputs(args, kwargs))


def counted(call: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    return counter.get_total_flops()


LAYERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Conv2d(16, 64, 1), (2, 16, 9, 7)),
    (nn.Conv2d(24, 36, 3, stride=2, padding=1, groups=12), (2, 24, 11, 8)),
    (nn.Conv2d(24, 24, 5, padding="same", dilation=2, groups=24), (1, 24, 12, 12)),
    (nn.Conv1d(9, 33, 3), (3, 9, 30)),
    (nn.Conv3d(8, 20, 1, bias=False), (1, 8, 3, 4, 5)),
    (nn.ConvTranspose2d(12, 30, 2, stride=2, groups=3), (2, 12, 5, 5)),
    (nn.Linear(15, 130), (7, 15)),
    (nn.Linear(20, 30, bias=False), (2, 3, 5, 20)),
]


@pytest.mark.parametrize(("module", "shape"), LAYERS, ids=[str(case[0]) for case in LAYERS])
def test_a_layer_is_recorded_as_torch_counts_it(module: nn.Module, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.ReLU(), module).eval()
    x = torch.randn(shape)
    [op] = [op for op in recorded(model, x).ops if op.layer]
    assert op.layer is not None
    assert op.module == "1"
    assert op.layer.has_bias == (module.bias is not None)
    flops = counted(lambda: model(x))
    assert op.layer.flops == op.flops == flops
    assert counted(call_of([op.layer])) == flops, "the same when it is called alone"


def zoo() -> list[tuple[nn.Module, torch.Tensor]]:
    small = [nn.Sequential(nn.ReLU(), module) for module, _ in LAYERS]
    models: list[tuple[nn.Module, torch.Tensor]] = [
        (model, torch.randn(shape)) for model, (_, shape) in zip(small, LAYERS, strict=True)
    ]
    return [
        *models,
        (lint_models.SideBySide(8), torch.randn(4, 8)),
        (lint_models.Branches(), torch.randn(2, 3, 16, 16)),
        (lint_models.ManySmall(), torch.randn(2, 4)),
        (lint_models.wide_convolution(24, 144), torch.randn(1, 3, 8, 8)),
        (lint_models.wide_convolution(320, 1280), torch.randn(1, 3, 4, 4)),
        (nn.Sequential(nn.Conv2d(6, 20, 3), nn.BatchNorm2d(20)), torch.randn(1, 6, 9, 9)),
    ]


def test_alternatives_cost_the_same_flops() -> None:
    seen = dict.fromkeys((rule.name for rule in LAYER_RULES), 0)
    for model, x in zoo():
        graph = recorded(model, x)
        for rule in LAYER_RULES:
            for case in rule.find(Seen(graph, {"linear": 1.0, "convolution": 1.0})):
                now = counted(call_of(case.now))
                others = {what: counted(call_of(layers)) for what, layers in case.others.items()}
                seen[rule.name] += 1
                if rule.name == "odd-channels":
                    for what, flops in others.items():
                        assert (flops > now) == what.startswith("up"), (case, what)
                else:
                    assert all(1 <= flops / now <= 1.05 for flops in others.values()), case
    assert all(seen.values()), seen


def test_products_of_channels() -> None:
    for product in (*range(9, 300, 7), 1280 * 320, 24 * 144, 2048 * 512 / 32):
        if (pair := same_product(product)) is not None:
            assert 1 <= pair[0] * pair[1] / product <= 1.05
            assert 0.5 <= pair[0] / pair[1] <= 2
    assert same_product(3) is None
    assert same_product(64 * 64) == (64, 64)
    assert [next_multiple(c, up=True) for c in (1, 8, 9)] == [8, 8, 16]


def test_edges_views_and_what_is_in_place() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(4, 8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x).relu_()
            left, right = y.chunk(2, 1)
            return torch.cat([left * 2, right], 1).flatten(1)

    graph = recorded(Mixed(), torch.randn(2, 4, 3, 3))
    names = [op.name for op in graph.ops]
    assert names == ["input", "convolution", "relu", "mul", "cat", "output"]
    sources = [[source.index for source in op.sources] for op in graph.ops]
    assert sources == [[], [0], [1], [2], [3, 2], [4]]
    assert [op.kind for op in graph.ops[1:5]] == ["layer", *["element-wise"] * 3]
    assert graph.ops[3].sources[0].numel == 72, "half of it"
    assert graph.consumers()[2] == [3, 4]
    assert graph.views >= 2
    assert graph.module_calls == 2
    assert [op.from_input for op in graph.ops[1:3]] == [True, False]


def test_layers_on_the_same_input_in_branches_and_in_a_row() -> None:
    def names(blocks: list[Any]) -> list[list[str]]:
        return [[op.module for op in block] for block in blocks if len(block) > 1]

    graph = recorded(lint_models.SideBySide(3), torch.randn(4, 8))
    parts = ["parts.0", "parts.1", "parts.2"]
    assert names(on_same_input(graph)) == [parts]
    assert names(branches(graph)) == [parts]

    graph = recorded(lint_models.Branches(), torch.randn(1, 3, 8, 8))
    assert names(on_same_input(graph)) == [["short", "long.0"]]
    assert names(branches(graph)) == [["short", "long.0", "long.2", "pooled.1"]]
    assert names(rows(graph)) == [["long.0", "long.2"]]

    graph = recorded(lint_models.Residual(), torch.randn(1, 16, 8, 8))
    assert names(branches(graph)) == names(on_same_input(graph)) == []

    chain = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), nn.Linear(4, 4))
    [block] = rows(recorded(chain, torch.randn(2, 8)))
    assert [layer_of(op).out_channels for op in block] == [8, 4, 4]


def test_parts_of_a_tensor_are_not_the_same_input() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = (x + 1).chunk(3, 1)
            return torch.cat([f(part) for f, part in zip(self.layers, parts, strict=True)])

    graph = recorded(Parts(), torch.randn(2, 12))
    assert on_same_input(graph) == []
    assert len(branches(graph)) == 1


def test_attention_reads_one_input_with_three_layers() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(16, 16)
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))

    graph = recorded(Attention(), torch.randn(2, 5, 16))
    [case] = next(rule for rule in LAYER_RULES if rule.name == "fragmented-blocks").find(
        Seen(graph)
    )
    assert case.where == (("q", "k", "v"),)
    [[one]] = case.others.values()
    assert (one.in_channels, one.out_channels) == (16, 48)


def test_a_row_is_small_though_one_of_its_layers_was_interrupted() -> None:
    fragmented = next(rule for rule in LAYER_RULES if rule.name == "fragmented-blocks")
    graph = recorded(nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)]), torch.ones(2, 4))
    layers = [op for op in graph.ops if op.layer is not None]
    for op in layers:
        op.seconds = 1e-5
    layers[2].seconds = 1e-2
    [case] = fragmented.find(Seen(graph, {layer_of(layers[0]).kind: 1e-5}))
    assert len(case.now) == 5
    for op in layers:
        op.seconds = 1e-2
    assert fragmented.find(Seen(graph, {layer_of(layers[0]).kind: 1e-5})) == []


def test_a_layer_with_its_channels_last_is_measured_so() -> None:
    model = nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 9, 9).to(memory_format=torch.channels_last)
    graph = recorded(model, x)
    assert layer_of(graph.ops[1]).channels_last
    assert not layer_of(recorded(nn.Conv2d(8, 16, 3), x.contiguous()).ops[1]).channels_last


def test_calls_alone_share_memory_and_give_the_same_shapes() -> None:
    class Steps(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = (x.transpose(0, 1) + 1).clone().mul_(0.5)
            return torch.cat([y, y * (y > 0)])

    graph = recorded(Steps(), torch.randn(40, 30))
    replays = [op.replay for op in graph.ops if op.replay]
    assert [op.name for op in graph.ops if op.replay] == ["add", "clone", "mul", "gt", "mul", "cat"]
    memory = Memory(replays)
    made = [memory.call(replay)() for replay in replays]
    assert [tuple(each.shape) for each in made] == [(30, 40)] * 5 + [(60, 40)]  # type: ignore[attr-defined]
    assert len({tensor.data_ptr() for tensor in memory._made.values()}) < 6
    assert hash(replays[0]) == hash(recorded(Steps(), torch.randn(40, 30)).ops[1].replay)


def test_hooks_are_gone_and_nothing_changed() -> None:
    model = lint_models.Branches().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recorded(model, torch.randn(1, 3, 8, 8))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_words() -> None:
    layer = Layer("linear", (7, 15), 130, True, torch.float32, torch.device("cpu"))
    assert str(layer) == "linear 15 -> 130 on 7 rows"
    conv = recorded(LAYERS[1][0], torch.randn(2, 24, 11, 8)).ops[1].layer
    assert str(conv) == "3x3 convolution 24 -> 36 in 12 groups on 2x24x11x8"


def test_sparse_products_are_no_linear_layers() -> None:
    class Neighbours(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("near", torch.eye(9).to_sparse())
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.near @ self.layer(x)

    found = recorded(Neighbours(), torch.ones(9, 4))
    assert [op.layer.in_channels for op in found.ops if op.layer] == [4]
    assert sum(op.flops for op in found.ops) == 2 * 9 * 4 * 4


def test_attention_and_recurrent_layers_have_their_flops() -> None:
    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    found = recorded(Attention(), torch.ones(2, 4, 64, 16))
    assert sum(op.flops for op in found.ops) == 2 * 2 * (2 * 4 * 64 * 64 * 16)
    lstm = nn.LSTM(8, 16)
    found = recorded(lstm, torch.ones(5, 3, 8))
    assert sum(op.flops for op in found.ops) == 2 * 5 * 3 * (4 * 16 * (8 + 16))


def test_the_fast_path_of_encoder_layers_is_seen() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 64, batch_first=True).eval()
    x = torch.ones(2, 5, 16)
    with torch.no_grad():
        assert takes_fast_path(Subject(layer, Inputs((x,))))
        assert not takes_fast_path(Subject(nn.Linear(16, 16), Inputs((x,))))
        with without_fast_path():
            assert not takes_fast_path(Subject(layer, Inputs((x,))))
    states = {one.rule: one.state for one in lint_model(layer, x, seconds=2.0).checked}
    assert states["element-wise-share"] == states["launch-bound"] == "unmeasured"
