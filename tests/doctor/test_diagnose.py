"""The doctor from code: what it prints, and what it saves."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from slipstream.doctor.compare import load_report
from slipstream.doctor.diagnose import Diagnosis, diagnose

PAGE = Path(__file__).parents[2] / "docs/doctor.md"


def train() -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in DataLoader(torch.randn(96, 4), 8):  # type: ignore[arg-type]
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    made: Any = diagnose(train)
    assert isinstance(made, Diagnosis)
    return made


def test_it_prints_as_plain_text(found: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = str(found)
    assert text.startswith(found.verdict[:40])
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    assert not hasattr(found, "_repr_html_")


def test_a_page_is_spoken_of_once_it_is_saved(found: Diagnosis, tmp_path: Path) -> None:
    assert "report" not in str(found)
    page, values = tmp_path / "page.html", tmp_path / "report.json"
    found.save(None, json=values)
    assert "report" not in str(found)
    found.save(page)
    assert str(found).endswith(f"The whole report: {page}")
    assert json.loads(values.read_text()) == json.loads(json.dumps(found.report))
    assert load_report(values)["verdict"] == found.verdict
    html = page.read_text()
    assert html.startswith("<!doctype html>")
    assert json.dumps(found.verdict)[1:20] in html


def test_the_page_goes_to_report_html_unless_told(
    found: Diagnosis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found.save()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_what_the_page_of_the_doctor_shows_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Linear(4, 2)
    batches = [(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))] * 6
    names = {"train": train, "model": model, "loader": batches}
    names["criterion"] = torch.nn.CrossEntropyLoss()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    exec("\n".join(blocks), names)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.json"}
    said = capsys.readouterr().out
    assert said.count("A step takes") == 2
    assert "forward       3" in said  # six laps, of which three do not count
