"""`slipstream compare`."""

import json
from pathlib import Path

import pytest

from slipstream.cli.sizes import parse_share
from slipstream.errors import UsageError
from tests.conftest import Run
from tests.doctor.reports import finding, report


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(json.dumps(report(41.2)), encoding="utf-8")
    b.write_text(json.dumps(report(22.9, findings=[finding("item-call", 2.0)])), encoding="utf-8")
    return a, b


def test_text_json_and_check(files: tuple[Path, Path], run_cli: Run) -> None:
    a, b = files
    done = run_cli("compare", a, b)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"a: {a}\nb: {b}\n\nb is 1.8 x faster: 41.2 -> 22.9 ms a step.\n")
    done = run_cli("compare", a, b, "--json", "--check")
    assert done.returncode == 1  # a new finding
    found = json.loads(done.stdout)
    assert (found["verdict"], found["is_worse"]) == ("faster", True)
    assert found["new"][0]["name"] == "item-call"
    assert run_cli("compare", b, a, "--check").returncode == 1
    assert run_cli("compare", b, a, "--check", "--tolerance", "90%").returncode == 0


def test_mistakes_are_explained(files: tuple[Path, Path], run_cli: Run) -> None:
    done = run_cli("compare", files[0], files[0].with_name("none.json"))
    assert done.returncode == 2
    assert "slipstream compare: " in done.stderr
    assert "Expected the JSON that `slipstream doctor --json` writes" in done.stderr
    assert run_cli("compare", *files, "--tolerance", "much").returncode == 2


def test_shares() -> None:
    for text in ("5", "100%", "-1%", "five", "%"):
        with pytest.raises(UsageError, match="is no share"):
            parse_share(text)
    assert parse_share("0") == 0
