"""Copies that a change of the script does not wait for: only of what nobody touches any more."""

import ast
from pathlib import Path

import pytest

from slipstream.run.diff.sent import check_source
from slipstream.run.diff.source import NoEdit, Source

SAFE = [
    """
        for x, _ in loader:
            x = x.view(-1, 784)
            x = x.to(device)
            learn(x)
    """,
    """
        for batch in loader:
            ids, labels = batch.input_ids.to(device), batch.labels.to(device)
            learn(ids, labels)
    """,
    """
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            x.mul_(2)
            learn(x, y)
    """,
    """
        for x, y in loader:
            x = x.to(device)
            y = y.to(device)
            learn(x, y)
    """,
    """
        for x, _ in loader:
            x = x.view(-1, 784).to(device)
            learn(x)
    """,
    """
        for i, data in enumerate(loader):
            x, y = data[0].to(device), data[1].to(device)
            learn(x, y)
    """,
    """
        for batch in loader:
            batch = {k: v.to(device) for k, v in batch.items()}
            learn(**batch)
    """,
    """
        for batch in loader:
            sent = [t.to(device) for t in batch]
            learn(*sent)
    """,
    """
        for batch in loader:
            x = batch["x"].to(device)
            seen += len(batch["x"])
            learn(x)
    """,
    """
        for batch in loader:
            x, y = batch
            x = x.to(device)
            y = y.to(device)
            count += batch[0].size(0)
            learn(x, y)
    """,
    """
        for x, y in loader:
            loss = learn(model(x.to(device)), y.to(device))
            total += loss.item() * x.size(0)
        print(len(loader.dataset))
    """,
    """
        def other(x):
            x.zero_()
        for x, y in loader:
            sent = x.to(device)
    """,
    """
        x = torch.from_numpy(rows).to(device)
        rows[0] = 1
    """,
]
CHANGED = [
    """
        for ids, _ in loader:
            labels = ids
            ids = ids.to(device)
            labels[labels == pad] = -100
            labels = labels.to(device)
    """,
    """
        for batch in loader:
            ids = batch.input_ids.to(device)
            labels = batch.input_ids
            labels[labels == pad] = -100
            labels = labels.to(device)
    """,
    """
        def step(x):
            x = x.to(device)
            learn(x)
    """,
    """
        sent = x.to(device)
        x.mul_(2)
    """,
    """
        sent = x.to(device)
        x[0] = 2
    """,
    """
        sent = x.to(device)
        x += 2
    """,
    """
        sent = x.to(device)
        augment(x)
    """,
    """
        sent = x.to(device)
        x.data = y
    """,
    """
        sent = x.view(-1).to(device)
        x.view(-1).zero_()
    """,
    """
        x = batch["x"]
        x = x.to(device)
        batch["x"].mul_(2)
    """,
    """
        x = batch["x"].to(device)
        kept = batch["x"]
        kept.add_(1)
    """,
    """
        sent = [t.to(device) for t in batch]
        batch[0].zero_()
    """,
    """
        sent = {k: v.to(device) for k, v in batch.items()}
        for v in batch.values():
            v.zero_()
    """,
    """
        def other():
            x.zero_()
        sent = x.to(device)
    """,
]


def check(tmp_path: Path, text: str, head: str = "if True:") -> None:
    path = tmp_path / "train.py"
    path.write_text(head + text)
    source = Source(path)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "to":
            check_source(source, node)


@pytest.mark.parametrize("text", SAFE)
@pytest.mark.parametrize("head", ["if True:", "def train():"])
def test_what_is_only_copied(tmp_path: Path, text: str, head: str) -> None:
    check(tmp_path, text, head)


@pytest.mark.parametrize("text", CHANGED)
def test_what_may_change_meanwhile(tmp_path: Path, text: str) -> None:
    with pytest.raises(NoEdit, match="may change while it is copied"):
        check(tmp_path, text)
