"""`inference-mode`: evaluation keeps no graph; whatever might learn is left alone."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.doctor.capture import BACKWARD, FORWARD, NEXT, OPTIMIZER, Capture, Span
from slipstream.run.evaluating.flow import Verdict, keeps_to_itself
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

# As if it were torch's: what evaluate gives to functions of the script is followed.
names = {"__name__": "torch.nn.functional", "own": nn.functional.cross_entropy, "graphs": graphs}
exec(
    "def cross_entropy(out, y):\\n    graphs.append(out.requires_grad)\\n    return own(out, y)",
    names,
)
cross_entropy = names["cross_entropy"]

def evaluate():
    model.eval()
    total = 0.0
    for x, y in batches:
        out = model(x)
        loss = cross_entropy(out, y)
        total += loss.item()
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
    "has tensors of inference mode": {"extra": "x = x - self.mean"},
    "computes differently": {"extra": "x = x * (1.0 if torch.is_grad_enabled() else 1.0001)"},
    "is looked at by a hook of all modules": {
        "setup": "from torch.nn.modules.module import register_module_forward_hook as watch\n"
        "def look(module, given, out): seen.append(out.sum().item())\nseen = []",
    },
    "is looked at": {
        "setup": "def look(module, given, out): seen.append(out.sum().item())\nseen = []",
    },
}


@pytest.mark.parametrize("name", list(LEFT_ALONE))
def test_models_that_do_more_are_left_alone(tmp_path: Path, name: str) -> None:
    source = loop(**LEFT_ALONE[name])
    if name == "is looked at by a hook of all modules":
        source = source.replace("optimizer = ", "handle = watch(look)\noptimizer = ", 1)
        source = f"{source}\nhandle.remove()\n"
    if name == "has tensors of inference mode":
        made = "with torch.inference_mode(): model.register_buffer('mean', torch.ones(8))"
        source = source.replace("optimizer = ", f"{made}\noptimizer = ", 1)
    if name == "is looked at":
        source = source.replace(
            "optimizer = ", "model.head.register_forward_hook(look)\noptimizer = "
        )
    _, without, _ = run_script(source, tmp_path)
    names, _ = same_losses(source, tmp_path, "inference-mode")
    assert names["values"] == without["values"]
    assert all(names["graphs"])


SPEAKING = {
    "prints": {"extra": "print('x', end='')"},
    "logs": {"setup": "import logging\nlog = logging.getLogger('x')", "extra": "log.log(20, 'x')"},
    "warns": {"setup": "from warnings import warn as tell", "extra": "tell('x')"},
    "writes": {"setup": "import sys\nfile = sys.stdout", "extra": "file.flush()"},
    "by a function": {
        "setup": "def tell(): say()\ndef say(): print('x', end='')",
        "extra": "tell()",
    },
    "by a method": {
        "setup": "class Teller:\n    def tell(self): print('x', end='')",
        "extra": "self.tell()",
    },
    "by an object": {
        "setup": "class Voice:\n    def tell(self): print('x', end='')\nvoice = Voice()",
        "extra": "voice.tell()",
    },
}


@pytest.mark.parametrize("name", list(SPEAKING))
@pytest.mark.filterwarnings("ignore:x")
def test_models_that_say_something_are_not_called_twice(tmp_path: Path, name: str) -> None:
    source = loop(**SPEAKING[name])
    if name == "by a method":
        source = source.replace("class Net(nn.Module)", "class Net(Teller, nn.Module)")
    names, known = same_losses(source, tmp_path, "inference-mode")
    assert all(names["graphs"])
    assert known.notes["inference-mode"][0].endswith("alone: it prints, logs or writes")


LETTING_GO = """
import weakref
kept = []
def fresh():
    given = []
    for x, y in batches:
        kept.append(sum(each() is not None for each in given))
        x = x.clone()
        given.append(weakref.ref(x))
        yield x, y
        del x
"""


def test_evaluation_keeps_nothing_that_the_script_lets_go(tmp_path: Path) -> None:
    head, body = loop(setup=LETTING_GO).split("def evaluate")
    body = body.replace("in batches:", "in fresh():", 1)
    body = body.replace("total += loss.item()", "total += loss.item()\n        del x, y, out, loss")
    names, known = same_losses(f"{head}def evaluate{body}", tmp_path, "inference-mode")
    assert names["graphs"][8:] == [False] * 24
    assert known.notes["inference-mode"][0].startswith("no graph for ")
    assert names["kept"] == [0] * 32


def test_names_that_the_script_holds_are_left_alone(tmp_path: Path) -> None:
    head, body = loop().split("def evaluate")
    body = body.replace("    total = 0.0\n", "    total = 0.0\n    held = locals()\n", 1)
    body = body.replace("    return total", "    assert held['total'] == 0.0\n    return total", 1)
    source = f"""{head}def evaluate{body}
class Names:
    model.eval()
    x = batches[0][0]
    out = model(x)
    total = out.sum().item()
    assert x is batches[0][0]
"""
    _, known = same_losses(source, tmp_path, "inference-mode")
    assert known.failures == {}


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


def test_the_table_says_why_a_call_is_left_alone(tmp_path: Path) -> None:
    source = """
    import torch
    model = torch.nn.Linear(4, 4).eval()
    def predict():
        return model(torch.ones(2, 4))
    for step in range(3):
        predict()
        model(torch.ones(2, 4)).sum().backward()
    """
    _, known = same_losses(source, tmp_path, "inference-mode")
    returned, outside = known.notes["inference-mode"]
    assert returned.endswith("train.py:5 alone: its result is returned")
    assert outside.endswith("train.py:8 alone: it is called outside of functions")


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
    # The forms of well-known scripts.
    "counts by eq": (
        "pred = out.argmax(1, keepdim=True); total += pred.eq(y.view_as(pred)).sum().item()",
        "total",
        True,
    ),
    "a sum over the batch": (
        "total += F.nll_loss(F.log_softmax(out, dim=1), y, reduction='sum').item()",
        "total",
        True,
    ),
    "accuracy": (
        "acc1, acc5 = accuracy(out, y, topk=(1, 2)); meter.note(acc1[0], x.size(0))",
        "None",
        True,
    ),
    "own list": ("own.append(out.argmax(1).cpu())", "torch.cat(own)", True),
    "own list of tensors": ("own.append(out)", "torch.cat(own).mean().item()", True),
    "own module": ("total += smooth(out, y).item()", "total", True),
    "own function": ("total += distance(out, one_hot(y)).item()", "total", True),
    "own sums": ("means = {'loss': 0.0}; means['loss'] += criterion(out, y)", "None", True),
    "own lists": ("lists = {'a': []}; lists['a'].append(out)", "None", True),
    "detached by a function that calls itself": ("state = apart((out, [out]))", "state", True),
    "returned by a function that calls itself": ("state = through((out, [out]))", "state", False),
    "own tensor": ("mean = torch.zeros(()); mean += out.sum()", "mean.item()", True),
    "own tensor like another": ("a = x.new_zeros(2); a[0] = out.sum()", "a.tolist()", True),
    "a loss of its own": ("total += nn.CrossEntropyLoss()(out, y).item()", "total", True),
    "a loss made later": ("crit = nn.MSELoss(); total += crit(out, x).item()", "total", True),
    "a module of unknown parts": ("total += nn.Sequential(Keeping())(out).item()", "total", False),
    "a loss of an unknown function": (
        "total += nn.TripletMarginWithDistanceLoss(distance_function=handle)(out, x, x).item()",
        "total",
        False,
    ),
    "log": ("meter.note(float(torch.log(out.exp().sum())), 1)", "None", True),
    "places of the best": ("_, best = torch.max(out, 1)", "best", True),
    # What may be learned from later.
    "gives it to an object": ("meter.note(criterion(out, y), 1)", "None", False),
    "gives it to a function": ("handle(out)", "None", False),
    "gives it to a function by name": ("handle(value=out)", "None", False),
    "gives it with others": ("handle(*[out])", "None", False),
    "gives it to an unknown one": ("unknown(out)", "None", False),
    "is kept if asked for": ("store.put(out)", "None", False),
    "is kept by a module": ("keeper(out)", "None", False),
    "is kept by a loss": ("total += keeping(out, y).item()", "total", False),
    "is put into an argument": ("kept += [out]", "None", False),
    "is put under a key": ("kept[0] = out", "None", False),
    "is put into a global": ("everything.append(out)", "None", False),
    "is put by another name": ("other = kept; other.append(out)", "None", False),
    "is put into a part": ("parts = [kept]; parts[0].append(out)", "None", False),
    "is put into a list of two names": ("store.all = own = []; own.append(out)", "None", False),
    "is added to an argument": ("sums.add_(out.sum())", "None", False),
    "may be called later": ("use = store.put; use(out)", "None", False),
    "is given to a key": ("best = sorted([out, out], key=handle)", "None", False),
    "is kept with all locals": ("kept.append(locals())", "None", False),
    "is put into what is asked for": (
        "lst = getattr(store, 'all'); lst.append(out)",
        "None",
        False,
    ),
    "is put into what a dictionary has": (
        "d = {'a': kept}; d['b'] = out; d.get('a').append(out)",
        "None",
        False,
    ),
    "is put into a default": (
        "d = {}; d['b'] = out; d.setdefault('a', kept).append(out)",
        "None",
        False,
    ),
    "is added to a view": ("view = sums.view(-1); view += out.sum()", "None", False),
    "is added to a view by torch": ("v = torch.squeeze(sums); v += out.sum()", "None", False),
    "is saved": ("torch.save(out, 'out.pt')", "None", False),
    # A tensor says whether it has a graph.
    "prints a tensor": ("print('loss', criterion(out, y))", "None", False),
    "prints a list": ("print(*[out])", "None", False),
    "logs": ("logging.info('%s', out)", "None", False),
    "str": ("text = str(out)", "None", False),
    "repr": ("text = repr(out)", "None", False),
    "in a string": ("print(f'{out}')", "None", False),
    "as repr": ("print(f'{criterion(out, y)!r}')", "None", False),
    "format": ("print('{}'.format(out))", "None", False),
    "percent": ("print('%s' % out)", "None", False),
    "in a message": ("assert out.ndim, out", "None", False),
    "a number in a string": ("loss = criterion(out, y); print(f'{loss}')", "None", True),
    "a sum in a string": ("print(f'{out.sum()}')", "None", True),
    "a number by format": ("print('{:.3f}'.format(criterion(out, y)))", "None", True),
    "a number by percent": ("print('%.3f' % criterion(out, y))", "None", True),
}
FILE = """
import logging
import torch
import torch.nn.functional as F
from torch import nn

everything = []

class Meter:
    def note(self, value, n):
        self.last = value

class Store:
    active = False
    def put(self, value):
        if self.active:
            self.all.append(value)

class Smooth(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(4, 4)
    def forward(self, out, y):
        logs = F.log_softmax(self.scale(out), dim=-1)
        return -logs.gather(-1, y.unsqueeze(1)).squeeze(1).mean()

class Keeping(Smooth):
    def forward(self, out, y=None):
        self.last = out
        return out.sum()

def handle(value):
    everything.append(value)

def one_hot(y):
    return F.one_hot(y, 4).float()

def apart(state):
    if isinstance(state, torch.Tensor):
        return state.detach()
    return tuple(apart(part) for part in state)

def through(state):
    if isinstance(state, tuple):
        return [through(part) for part in state]
    return state

def distance(out, wanted):
    diff = out - wanted
    return (diff * diff).sum()

def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            res.append(correct_k.mul_(100.0 / batch_size))
        return res

keeper, keeping, smooth, store = Keeping(), Keeping(), Smooth(), Store()

def evaluate(model, batches, criterion, meter, kept, sums, looked):
    total, own = 0, []
    for x, y in batches:
        looked()
        out = model(x)
        BODY
    return RETURNED
"""


def verdict_of(folder: Path, source: str, **given: Any) -> Verdict:
    """What is said of the call of a model when `evaluate` comes to it."""
    path = folder / "source.py"
    path.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    found: list[Verdict] = []
    line = source[: source.index("out = model(")].count("\n") + 1

    def looked() -> None:
        frame = sys._getframe(1)
        found.append(keeps_to_itself(frame.f_code, line, dict(frame.f_locals), names))
        raise InterruptedError

    arguments = {
        "model": torch.nn.Linear(4, 4),
        "batches": [(torch.randn(3, 4), torch.tensor([0, 1, 2]))],
        "criterion": torch.nn.CrossEntropyLoss(),
        "meter": names["Meter"](),
        "kept": [],
        "sums": torch.zeros(()),
        "looked": looked,
    }
    with pytest.raises(InterruptedError):
        names["evaluate"](**{**arguments, **given})
    return found[0]


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_the_source_tells_whether_a_result_stays(tmp_path: Path, name: str) -> None:
    body, returned, stays = FUNCTIONS[name]
    found = verdict_of(tmp_path, FILE.replace("BODY", body).replace("RETURNED", returned))
    assert found.stays is stays, found.why_not
    assert found.stays or found.gives or found.why_not


LATER = """
import torch
from torch import nn

class Penalty:
    def __init__(self):
        self.terms, self.active = [], False
    def add(self, out):
        if self.active:
            self.terms.append(out.pow(2).mean())

class Nothing:
    def add(self, out):
        pass

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
penalty = FIRST

def predict():
    model.eval()
    for _ in range(4):
        penalty.add(model(torch.randn(3, 4)))
    model.train()

for epoch in range(8):
    optimizer.zero_grad()
    model(torch.randn(3, 4)).square().mean().backward()
    optimizer.step()
    if epoch == 5:
        penalty = Penalty()
        penalty.active = True
    predict()
    if epoch >= 5:
        optimizer.zero_grad()
        sum(penalty.terms).backward()
        penalty.terms = []
        optimizer.step()
"""


@pytest.mark.parametrize("first", ["Penalty()", "Nothing()"])
def test_what_is_learned_from_much_later_keeps_its_graph(tmp_path: Path, first: str) -> None:
    """By an object that keeps it when it is told to, or that has come in place of another."""
    _, known = same_losses(LATER.replace("FIRST", first), tmp_path, "inference-mode")
    assert " alone: " in known.notes["inference-mode"][-1]


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


ATTENTION = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, 2)
    def forward(self, x):
        return self.head(self.body(self.words(x), src_key_padding_mask=x == 0).mean(1))

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
whole, padded = torch.randint(1, 50, (8, 12)), torch.randint(1, 50, (8, 12))
padded[:, 8:] = 0
labels = torch.randint(0, 2, (8,))
values = []

def evaluate(batch):
    model.eval()
    loss = nn.functional.cross_entropy(model(batch), labels)
    values.append(loss.item())

for step in range(8):
    model.train()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(whole), labels).backward()
    optimizer.step()
    evaluate(whole)
    if step > 6:
        evaluate(padded)
"""


@pytest.mark.filterwarnings("ignore")
def test_attention_leaves_padding_out_without_gradients(tmp_path: Path) -> None:
    _, without, _ = run_script(ATTENTION, tmp_path)
    names, known = same_losses(ATTENTION, tmp_path, "inference-mode")
    assert names["values"] == without["values"]
    assert known.notes["inference-mode"][0].endswith("in another way without gradients")
