"""`torchrun -m slipstream run`: ranks try together, decide alike, and do what they would alone."""

import json
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from torch.distributed import HashStore, PrefixStore  # type: ignore[attr-defined]

from slipstream.errors import UsageError
from slipstream.run.ranks import StoreRanks

pytestmark = pytest.mark.timeout(900)

# SICK is added to the loss, where gradients do not see it: the other rank learns nothing of it.
SCRIPT = """
import os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
data = TensorDataset(torch.randn(128, 16))
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Dropout(0.1)))
torch.manual_seed(rank)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
sampler = DistributedSampler(data)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in DataLoader(data, 4, sampler=sampler):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean() + SICK
        loss.backward()
        optimizer.step()
sys.stdout.write(f"rank {rank} loss {loss.item().hex()}\\n")
sys.stdout.flush()
dist.destroy_process_group()
"""
SICK = '(rank == 1 and hasattr(torch.nn.Module.zero_grad, "__wrapped__"))'


def torchrun(folder: Path, *arguments: str, rendezvous: str = "--standalone") -> Any:
    return subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", *rendezvous.split(),
            "--nproc-per-node", "2", *arguments,
        ],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def losses(done: Any) -> list[str]:
    return sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))


def states(folder: Path) -> dict[str, tuple[str, str]]:
    result = json.loads((folder / "result.json").read_text())
    return {entry["fix"]: (entry["state"], entry["why"]) for entry in result["fixes"]}


def test_ranks_learn_what_they_learn_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(dedent(SCRIPT).replace("SICK", "0"))
    plain = torchrun(tmp_path, "train.py")
    assert plain.returncode == 0, plain.stderr
    static = "--master-addr 127.0.0.1 --master-port 29618"
    for _ in range(3):  # in trials of such short steps a fix may be slower by chance
        done = torchrun(
            tmp_path, "-m", "slipstream", "run", "--only", "zero-grad,garbage-pauses", "--report",
            "result.json", "train.py", rendezvous=static,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        if not any("slower: " in why for _, why in states(tmp_path).values()):
            break
    assert losses(done) == losses(plain)
    assert len(losses(done)) == 2
    assert done.stderr.count("\ncheck ") == 1  # one rank speaks
    assert "are equal, bit for bit" in done.stderr


def test_a_fix_that_fails_on_one_rank_is_undone_on_both(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(dedent(SCRIPT).replace("SICK", SICK))
    plain = torchrun(tmp_path, "train.py")
    done = torchrun(
        tmp_path, "-m", "slipstream", "run", "--only", "zero-grad", "--report", "result.json",
        "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    state, why = states(tmp_path)["zero-grad"]
    assert state == "undone"
    assert "rank 1: loss of backward pass 1" in why
    assert losses(done) == losses(plain)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_script_that_fails_on_one_rank_ends_all(tmp_path: Path, failing: int) -> None:
    sick = f"([].pop() if rank == {failing} else 0)"
    (tmp_path / "train.py").write_text(dedent(SCRIPT).replace("SICK", sick))
    done = torchrun(tmp_path, "-m", "slipstream", "run", "train.py")
    assert done.returncode != 0
    assert "did not get through a trial, so it runs as written" in done.stderr
    why = f"without fixes: rank {failing}: IndexError: pop from empty list"
    assert why in " ".join(done.stderr.split())
    assert "pop from empty list" in done.stderr


def test_a_rank_that_does_not_answer_ends_the_others() -> None:
    ranks = StoreRanks(0, 2, PrefixStore("x", HashStore()), patience_s=0.2)
    with pytest.raises(UsageError, match="Rank 1 did not answer"):
        ranks.all("here")


def test_all_ranks_get_all_values() -> None:
    store = HashStore()
    store.set_timeout(timedelta(seconds=10))
    got: dict[int, Any] = {}

    def ask(rank: int) -> None:
        ranks = StoreRanks(rank, 2, PrefixStore("x", store))
        got[rank] = [ranks.all(rank), ranks.first(f"of {rank}"), ranks.environment()]

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert got[0] == got[1]
    assert got[0][:2] == [[0, 1], "of 0"]
    assert got[0][2]["MASTER_PORT"].isdigit()
