"""Fixes that round differently, tried on a real script in processes of its own."""

from pathlib import Path
from textwrap import dedent

import pytest

from slipstream.doctor.capture import Capture
from slipstream.launch import Target
from slipstream.run.fixes import fused_optimizer
from slipstream.run.numeric import prove
from slipstream.run.situation import diagnosed

# The optimizer takes most of a step: many small parameters, one by one.
SCRIPT = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
weights = [torch.nn.Parameter(torch.randn(48, 48)) for _ in range(150)]
optimizer = torch.optim.Adam(weights, lr=1e-2)
for step in range(60):
    loss = (torch.cat([w.view(-1) for w in weights]) * torch.rand(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MEASURED = {"name": "optimizer-fused", "now_ms": [2.0] * 5, "then_ms": [1.0] * 5}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_script_is_faster_and_learns_the_same(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(dedent(SCRIPT))
    known = tmp_path / "known"
    known.mkdir()
    diagnosed(Capture("train.py", {}, "", replays=[MEASURED]), known)
    said: list[str] = []
    proof = prove(Target(str(script)), 7, (), [fused_optimizer.FIX], known, said.append)
    assert proof.kept == ["fused-optimizer"], proof.outcomes
    assert "inside the band of 4 runs" in proof.outcomes[0].why
    assert [line for line in said if "fused-optimizer" in line]
