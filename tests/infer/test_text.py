"""The table of a search, as people see it."""

import pytest

from slipstream.infer.row import Row
from slipstream.infer.text import table_of
from slipstream.timing import Ratio

ROWS = [
    Row("folded + compile", "exact", "slower", "not surely faster", 2.8, Ratio(0.9, 0.8, 1.0)),
    Row("eager", "exact", "model", "", 2.6, Ratio(1.0, 1.0, 1.0)),
    Row("onnxruntime", "exact", "won", "", 1.23, Ratio(2.16, 2.1, 2.21), 1.2, 1e-7),
    Row("aotinductor", "exact", "failed", "OSError: [Errno 2] no [/usr/bin/c++] :boom: here"),
    Row("tensorrt", "mixed", "skipped", "the model is not on a [CUDA] device"),
]  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_table_fits_and_says_everything(width: int) -> None:
    lines = table_of(ROWS, width).splitlines()
    assert max(map(len, lines)) <= width
    said = " ".join(" ".join(lines).split())
    for row in ROWS:
        assert row.name.split()[0] in said
    assert "2.16" in said and "1e-07" in said and "not surely faster" in said
    assert lines[1].split()[0] == "2.16", "the fastest comes first"


@pytest.mark.parametrize("width", [80, 140])
def test_reasons_are_shown_as_they_are(width: int) -> None:
    said = " ".join(table_of(ROWS, width).split())
    for word in ("[Errno", "[/usr/bin/c++]", ":boom:", "[CUDA]"):
        assert word in said


def test_reasons_stand_below_their_names() -> None:
    lines = table_of(ROWS, 80).splitlines()
    place = next(number for number, line in enumerate(lines) if "folded" in line)
    assert lines[place].endswith("folded + compile")
    assert lines[place + 1].strip() == "not surely faster; 0.80 to 1.00 x"
