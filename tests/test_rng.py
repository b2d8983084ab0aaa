"""Random numbers are put back, those of devices that nobody has used yet included."""

import pytest
import torch

from slipstream.rng import rng_as_before, seed_all


def test_a_seed_waits_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def queue(seed: int) -> None:
        raise AssertionError(f"{seed} would take the place of the caller's")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", queue)
    before = torch.get_rng_state()
    with rng_as_before():
        seed_all(3)
        one = torch.rand(4)
        seed_all(3)
        assert torch.equal(torch.rand(4), one)
    assert torch.equal(torch.get_rng_state(), before)
