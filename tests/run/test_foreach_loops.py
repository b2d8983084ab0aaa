"""Averages of models are updated at once, with the same numbers, and other loops stay."""

import ast
from pathlib import Path

import pytest
import torch

from slipstream.run.fixes import foreach_loops
from slipstream.run.looping.find import rewritten
from tests.run.loop_kit import situation

START = """
import copy
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
decay = 0.9
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(16, 4)).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters()):
            {update}
result = [p.detach().clone() for p in average.parameters()]
"""
UPDATES = {
    "alpha": "kept.mul_(decay).add_(new, alpha=1 - decay)",
    "data": "kept.data.mul_(decay).add_(new.data, alpha=1 - decay)",
    "product": "kept.mul_(decay).add_((1 - decay) * new.detach())",
    "product, other way": "kept.mul_(decay).add_(new * (1 - decay))",
    "lerp": "kept.lerp_(new, 1 - decay)",
    "copy": "kept.copy_(new)",
    "sum": "kept.copy_(decay * kept + (1 - decay) * new)",
    "sum, other way": "kept.data.copy_(new.data * (1 - decay) + kept.data * decay)",
}
OTHERS = {
    "a call as a factor": "kept.mul_(decay).add_(new, alpha=float(step))",
    "a factor of the pair": "kept.mul_(decay).add_(new, alpha=new.mean())",
    "the other way round": "new.copy_(kept)",
    "something else too": "kept.copy_(new); print(1)",
    "a sum of others": "kept.copy_(decay * new + (1 - decay) * new)",
    "a difference": "kept.copy_(decay * kept - (1 - decay) * new)",
}


def run(source: str, folder: Path, *, fixed: bool) -> tuple[list[torch.Tensor], list[str]]:
    from slipstream import launch

    path = folder / "train.py"
    path.write_text(source)
    known = situation()
    undo = foreach_loops.apply(known) if fixed else lambda: None
    names: dict[str, object] = {}
    try:
        exec(launch._compiled(path), names)
    finally:
        undo()
    assert known.failures == {}
    return names["result"], known.notes.get(foreach_loops.NAME, [])  # type: ignore[return-value]


@pytest.mark.parametrize("update", UPDATES)
def test_averages_are_updated_at_once(update: str, tmp_path: Path) -> None:
    source = START.format(update=UPDATES[update])
    before, _ = run(source, tmp_path, fixed=False)
    after, notes = run(source, tmp_path, fixed=True)
    assert notes == ["6 tensors are updated at once"]
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other)
    assert not all(bool((value == 0).all()) for value in after)


@pytest.mark.parametrize("update", OTHERS)
def test_other_loops_stay(update: str) -> None:
    assert rewritten(START.format(update=OTHERS[update]), "train.py") is None


def test_names_that_are_read_later_keep_their_loop() -> None:
    source = START.format(update=UPDATES["alpha"])
    assert rewritten(source + "\nprint(kept)", "train.py") is None
    assert isinstance(rewritten(source, "train.py"), ast.Module)


def test_counts_among_averages_are_left_to_the_loop(tmp_path: Path) -> None:
    """As a state_dict has them."""
    source = START.format(update=UPDATES["sum"]).replace(
        "average.parameters(), model.parameters()",
        "average.state_dict().values(), model.state_dict().values()",
    )
    source = source.replace("in average.parameters()]", "in average.state_dict().values()]")
    before, _ = run(source, tmp_path, fixed=False)
    after, notes = run(source, tmp_path, fixed=True)
    assert notes == ["8 tensors are updated at once"]
    assert len(after) == 9 and [each.dtype for each in after].count(torch.int64) == 1
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other)


def test_tensors_that_share_memory_are_updated_one_by_one(tmp_path: Path) -> None:
    """The second update reads what the first wrote."""
    shared = START.format(update=UPDATES["alpha"]).replace(
        "average.parameters(), model.parameters()", "[a, b], [b, c]"
    )
    shared = shared.replace("decay = 0.9", "decay = 0.9\na, b, c = torch.rand(3, 4).unbind()")
    shared = shared.replace("average.parameters()", "[a, b, c]")
    before, _ = run(shared, tmp_path, fixed=False)
    after, notes = run(shared, tmp_path, fixed=True)
    assert notes == []
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_changes_of_data_are_not_counted(tmp_path: Path) -> None:
    """A backward pass that needs the old values would fail."""
    source = START.format(update=UPDATES["data"]).replace(
        "result =", "versions = [p._version for p in average.parameters()]\nresult ="
    )
    source = source.replace("result =", "result = [torch.tensor(versions)]; unused =")
    before, _ = run(source, tmp_path, fixed=False)
    after, notes = run(source, tmp_path, fixed=True)
    assert notes and torch.equal(before[0], after[0])


def test_an_error_of_the_loop_is_the_scripts_own(tmp_path: Path) -> None:
    source = START.format(update=UPDATES["alpha"]).replace("with torch.no_grad():", "if True:")
    for fixed in (False, True):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            run(source, tmp_path, fixed=fixed)


@pytest.mark.parametrize(
    ("given", "is_helped"),
    [
        ("avg_fn=swa_utils.get_ema_avg_fn(0.9)", True),
        ("", True),
        ("multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)", False),
        ("avg_fn=lambda kept, new, count: 0.5 * kept + 0.5 * new", False),
    ],
)
def test_averaged_models(given: str, is_helped: bool, tmp_path: Path) -> None:
    source = f"""
import torch
from torch.optim import swa_utils
torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
average = swa_utils.AveragedModel(model, {given})
for step in range(4):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p))
    average.update_parameters(model)
result = [p.detach().clone() for p in average.parameters()]
assert average.multi_avg_fn is None or not {is_helped}
"""
    before, _ = run(source, tmp_path, fixed=False)
    after, notes = run(source, tmp_path, fixed=True)
    assert bool(notes) is is_helped
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other)


def test_it_is_tried_where_the_doctor_saw_a_loop(tmp_path: Path) -> None:
    assert foreach_loops.applies(situation(rules=(foreach_loops.RULE,)))[0]
    assert not foreach_loops.applies(situation())[0]
