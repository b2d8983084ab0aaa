"""`zero-grad`: what is let go, and when zeros come back."""

from pathlib import Path

import pytest
import torch

from slipstream.run.fixes import zero_grad
from tests.run.loop_kit import run_script, same_losses, situation

# The second head is used in every third step alone; momentum and decay go on without it.
HEADS = """
import torch
LOOK = torch._C.TensorBase.grad.__get__  # that nobody notices
torch.manual_seed(0)
trunk, one, two = torch.nn.Linear(6, 8), torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
model = torch.nn.ModuleList([trunk, one, two])
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.05, weight_decay=0.1)
seen, identities = [], []
for step in range(12):
    {zero}
    seen.append([LOOK(p) is None for p in model.parameters()])
    if step == 7:
        looked = [p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None]
    head = two if step % 3 == 1 else one
    loss = head(trunk(torch.randn(4, 6)).relu()).square().mean()
    loss.backward()
    identities.append([p.grad is None for p in model.parameters()])
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
weights = [p.detach().clone() for p in model.parameters()]
"""


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "RMSprop"])
@pytest.mark.parametrize("thing", ["optimizer", "model"])
def test_gradients_are_let_go_and_the_losses_stay(
    tmp_path: Path, optimizer: str, thing: str
) -> None:
    zero = f"{thing}.zero_grad(set_to_none=False)"
    source = HEADS.format(optimizer=optimizer, zero=zero)
    _, without, _ = run_script(source, tmp_path)
    names, _ = same_losses(source, tmp_path, "zero-grad")
    assert not any(without["seen"][5]) and all(names["seen"][5])
    assert names["identities"] == without["identities"]
    assert names["looked"] == without["looked"] == [0.0] * len(names["weights"])
    for before, after in zip(without["weights"], names["weights"], strict=True):
        assert torch.equal(before, after)


def test_a_step_without_a_backward_pass_gets_its_zeros(tmp_path: Path) -> None:
    source = """
    import torch
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.1)
    for step in range(6):
        optimizer.zero_grad(set_to_none=False)
        if step % 2 == 0:
            (weight * torch.randn(3)).sum().backward()
        optimizer.step()
    kept = weight.detach().clone()
    """
    _, without, _ = run_script(source, tmp_path)
    names, _ = same_losses(source, tmp_path, "zero-grad")
    assert torch.equal(names["kept"], without["kept"])


def test_gradients_that_the_script_holds_are_filled(tmp_path: Path) -> None:
    source = """
    import torch
    model = torch.nn.Linear(4, 2)
    flat = torch.zeros(10)
    model.weight.grad = flat[:8].view(2, 4)
    model.bias.grad = torch.zeros(2)
    held = model.bias.grad
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sums = []
    for step in range(4):
        optimizer.zero_grad(set_to_none=False)
        sums.append((float(flat.sum()), float(held.sum())))
        model(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
    shared = model.weight.grad.data_ptr() == flat.data_ptr() and held is model.bias.grad
    """
    names, _ = same_losses(source, tmp_path, "zero-grad")
    assert names["shared"]
    assert names["sums"] == [(0.0, 0.0)] * 4
    assert float(names["flat"].abs().sum()) > 0


def test_sparse_gradients_are_left_alone(tmp_path: Path) -> None:
    source = """
    import torch
    table = torch.nn.Embedding(9, 3, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad(set_to_none=False)
        kept = step == 0 or table.weight.grad is not None
        table(torch.randint(0, 9, (5,))).sum().backward()
        optimizer.step()
    """
    names, _ = same_losses(source, tmp_path, "zero-grad")
    assert names["kept"] and "grad" not in vars(torch.Tensor)


def test_what_asks_for_none_gets_none(tmp_path: Path) -> None:
    source = HEADS.format(optimizer="SGD", zero="optimizer.zero_grad()")
    _, without, _ = run_script(source, tmp_path)
    names, _ = same_losses(source, tmp_path, "zero-grad")
    assert names["identities"] == without["identities"]
    assert any(names["identities"][5])


LOOKS = {
    "copies": "kept.append([p.grad.clone() for p in model.parameters()])",
    "asks whether": "kept.append([p.grad is None for p in model.parameters()])",
    "copies the model": "kept.append([p.grad for p in copy.deepcopy(model).parameters()])",
    "sets one": "model.bias.grad = torch.ones(2)",
    "deletes one": "del model.bias.grad",
    "freezes one": "model.bias.requires_grad_(False); model.bias.grad = None",
    "freezes and deletes one": "model.bias.requires_grad_(False); del model.bias.grad",
    "asks below": "kept.append(model.bias._grad.clone())",
    "zeros them twice": "model.zero_grad(set_to_none=False); kept.append(model.bias.grad.clone())",
    "in inference mode": "with torch.inference_mode(): kept.append(model.weight.grad.clone())",
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_who_looks_finds_zeros(tmp_path: Path, look: str) -> None:
    source = f"""
    import copy, torch
    model, kept, sums = torch.nn.Linear(3, 2), [], []
    model.weight.register_post_accumulate_grad_hook(lambda p: sums.append(p.grad.sum().item()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(6):
        optimizer.zero_grad(set_to_none=False)
        if step in (2, 4):
            {look}
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
    weights = [p.detach().clone() for p in model.parameters()]
    """
    _, without, _ = run_script(source, tmp_path)
    names, _ = same_losses(source, tmp_path, "zero-grad")
    assert str(names["kept"]) == str(without["kept"]) and names["sums"] == without["sums"]
    assert str(names["weights"]) == str(without["weights"])


@pytest.mark.parametrize(
    "share",
    ["p.grad.view(-1)", "p.grad.detach()", "p.grad.data", "p.grad.numpy()", "shadow_of(p)._grad"],
)
def test_memory_that_others_know_is_filled(tmp_path: Path, share: str) -> None:
    source = f"""
    import torch
    def shadow_of(p):
        made = torch.nn.Parameter(p.detach().clone())
        made._grad = p.grad
        return made
    model, sums = torch.nn.Linear(3, 2), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        model(torch.randn(4, 3)).square().sum().backward()
        if step == 1:
            known = [{share} for p in model.parameters()]
        if step:
            sums.append([float(each.sum()) for each in known])
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    """
    _, without, _ = run_script(source, tmp_path)
    names, _ = same_losses(source, tmp_path, "zero-grad")
    assert names["sums"] == without["sums"] and names["sums"][1] != names["sums"][2]


def test_it_leaves_scripts_alone_that_compile() -> None:
    compiling = situation("zero_grad(set_to_none=False)", settings={"compilations": 1})
    assert not zero_grad.applies(compiling)[0]


def test_it_applies_where_gradients_are_filled() -> None:
    assert zero_grad.applies(situation("zero_grad(set_to_none=False)"))[0]
    assert not zero_grad.applies(situation("zero_grad"))[0]
