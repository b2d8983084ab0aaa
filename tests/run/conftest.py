"""Fixtures that several files of tests of `slipstream run` have in common."""

import pytest

from tests.run.loading_kit import always_scouted, always_worth_it


@pytest.fixture(params=["alone", "scouted"])
def alone_or_scouted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Batches are made ahead whatever they cost, by one process or with another one that draws."""
    always_worth_it(monkeypatch)
    if request.param == "scouted":
        always_scouted(monkeypatch)
