"""`inference-mode`: evaluation keeps no graph; whatever might learn is left alone."""

from pathlib import Path
from typing import Any

import pytest

from slipstream.doctor.capture import BACKWARD, FORWARD, NEXT, OPTIMIZER, Capture, Span
from slipstream.run.evaluating.flow import keeps_to_itself
from slipstream.run.fix import Situation
from slipstream.run.fixes import evaluation
from tests.doctor.made_case import made_loader
from tests.run.loop_kit import run_script, same_losses

LOOP = """
import torch
from torch import nn

SETUP
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)
    def forward(self, x):
        x = self.body(x).mean((2, 3))
        EXTRA
        return self.head(x)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [(torch.randn(n, 3, 12, 12), torch.randint(0, 4, (n,))) for n in (6, 6, 6, 3)]
graphs, values = [], []

# Its source does not speak of graphs: evaluate keeps to itself what it gets.
def note(out):
    graphs.append(out.grad_fn is not None)

def evaluate():
    model.eval()
    total = 0.0
    for x, y in batches:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        total += loss.item()
        note(out)
    return total

for step in range(8):
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    values.append(evaluate())
"""


def loop(*, setup: str = "", extra: str = "pass") -> str:
    return LOOP.replace("SETUP", setup).replace("EXTRA", extra)


def test_evaluation_keeps_no_graph(tmp_path: Path) -> None:
    _, without, _ = run_script(loop(), tmp_path)
    names, known = same_losses(loop(), tmp_path, "inference-mode")
    assert names["values"] == without["values"]
    assert all(without["graphs"])
    # Watched in the first evaluation, compared in the second: two shapes.
    assert names["graphs"][:4] == [True] * 4
    assert names["graphs"][8:] == [False] * 24
    assert known.notes["inference-mode"][0].startswith("no graph for ")


ASKS = "torch.autograd.grad(x.sum(), self.body[0].weight, retain_graph=True)"
LEFT_ALONE = {
    "draws": {"extra": "x = x + torch.randn(8)"},
    "changes a buffer": {"extra": "self.body[1].num_batches_tracked.add_(1)"},
    "keeps state": {"extra": "self.calls = getattr(self, 'calls', 1000) + 1"},
    "counts in a dictionary": {"setup": "seen = {'calls': 1000}", "extra": "seen['calls'] += 1"},
    "counts in its own": {
        "extra": "self.seen = getattr(self, 'seen', None) or {'n': 0}; self.seen['n'] += 1",
    },
    "asks for gradients itself": {"extra": ASKS},
    "computes differently": {"extra": "x = x * (1.0 if torch.is_grad_enabled() else 1.0001)"},
    "is looked at": {
        "setup": "def look(module, given, out): seen.append(out.sum().item())\nseen = []",
    },
}


@pytest.mark.parametrize("name", list(LEFT_ALONE))
def test_models_that_do_more_are_left_alone(tmp_path: Path, name: str) -> None:
    source = loop(**LEFT_ALONE[name])
    if name == "is looked at":
        source = source.replace(
            "optimizer = ", "model.head.register_forward_hook(look)\noptimizer = "
        )
    _, without, _ = run_script(source, tmp_path)
    names, _ = same_losses(source, tmp_path, "inference-mode")
    assert names["values"] == without["values"]
    assert all(names["graphs"])


CACHE = """
import torch
from torch import nn

class Cache:
    def __init__(self):
        self.seen = None
    def update(self, x):
        self.seen = x if self.seen is None else torch.cat([self.seen, x], 1)
        return self.seen

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 4)
    def forward(self, x, cache=None):
        x = x if cache is None else cache.update(x)
        return self.head(self.body(x).mean(1))

model, scores = Net(), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def evaluate():
    model.eval()
    cache, total = Cache(), 0.0
    for _ in range(6):
        out = model(torch.ones(2, 1, 4), cache)
        total += out.sum().item()
    model.train()
    return total

for step in range(8):
    optimizer.zero_grad()
    model(torch.randn(3, 2, 4)).square().mean().backward()
    optimizer.step()
    scores.append(evaluate())
"""


def test_objects_that_a_call_may_change_are_not_given_to_it_twice(tmp_path: Path) -> None:
    _, without, _ = run_script(CACHE, tmp_path)
    names, _ = same_losses(CACHE, tmp_path, "inference-mode")
    assert names["scores"] == without["scores"]


def test_learning_in_evaluation_mode_is_left_alone(tmp_path: Path) -> None:
    """A frozen batch norm, and later on a function that learns from what it is given."""
    source = """
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = []
    def predict(x):
        out = model(x)
        held.append(out)
    def learn():
        optimizer.zero_grad()
        held.pop().square().mean().backward()
        optimizer.step()
    for step in range(12):
        predict(torch.randn(3, 4))
        learn()
    """
    same_losses(source, tmp_path, "inference-mode")


FUNCTIONS = {
    "sums": ("total += criterion(out, y).item()", "total / len(batches)", True),
    "counts": ("total += (out.argmax(1) == y).sum()", "total", True),
    "max": ("_, best = out.max(1); total += (best == y).sum().item()", "total", True),
    "float": ("total += float(criterion(out, y))", "total", True),
    "prints": ("print(f'{criterion(out, y):.3f}')", "None", True),
    "meter": ("meter.note(criterion(out, y).item(), y.size(0))", "meter.mean", True),
    "returns": ("last = out", "last", False),
    "returns a list": ("kept.append(out)", "kept", False),
    "returns a loss": ("total += criterion(out, y)", "total / 3", False),
    "returns a pair": ("a = (out, y)", "a[0]", False),
    "keeps": ("model.last = out", "None", False),
    "learns": ("criterion(out, y).backward()", "None", False),
    "asks": ("torch.autograd.grad(out.sum(), x)", "None", False),
    "plain list": ("kept.append(out.tolist())", "kept", True),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_the_source_tells_whether_a_result_stays(tmp_path: Path, name: str) -> None:
    body, returned, stays = FUNCTIONS[name]
    path = tmp_path / "source.py"
    path.write_text(
        "def evaluate(model, batches, criterion, meter, kept):\n    total = 0\n"
        f"    for x, y in batches:\n        out = model(x)\n        {body}\n    return {returned}\n"
    )
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert keeps_to_itself(names["evaluate"].__code__, 4) is stays


def recorded(detail: list[Any], *, then: str) -> Situation:
    spans = []
    for number in range(40):
        at = number * 10_000
        spans += [
            Span(NEXT, at, at + 1, [0, 0, number, 0, 0]),
            Span(FORWARD, at + 1000, at + 2000, detail),
            Span(then, at + 2000, at + 3000, 0),
            Span(OPTIMIZER, at + 3000, at + 4000, 0),
        ]
    model = {"models": [{"trainable": 2, "with_gradient": 2}]}
    capture = Capture("train.py", {}, "", spans=spans, model=model, loaders=[made_loader()])
    return Situation({}, capture)


def test_it_applies_where_nothing_learns() -> None:
    assert evaluation.applies(recorded([0, False, True], then="call"))[0]
    assert not evaluation.applies(recorded([0, False, True], then=BACKWARD))[0]
    assert not evaluation.applies(recorded([0, True, True], then=BACKWARD))[0]
    assert not evaluation.applies(recorded([0, False, False], then="call"))[0]
