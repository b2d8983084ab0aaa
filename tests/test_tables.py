"""Tables show others' words as they are."""

from typing import Any

import pytest

from slipstream.infer.compress.result import Compressed, CompressedRow
from slipstream.infer.qat.report import Line, Report
from slipstream.tables import short
from slipstream.train.row import Row as StepRow
from slipstream.train.text import table_of

WORDS = "RuntimeError: [Errno 2] [/usr/bin] :boom:"


def of_a_step() -> Any:
    return table_of([StepRow("compile", "numeric", "failed", WORDS)])


def of_compressing() -> Any:
    return Compressed(None, None, [CompressedRow("pruned", "failed", WORDS)])  # type: ignore[arg-type]


def of_few_bits() -> Any:
    line = Line("a", "int8", "int8", "float", WORDS, 8, 2)
    return Report(lines=[line], bytes_before=8, bytes_after=2)


@pytest.mark.parametrize("shown", [of_a_step, of_compressing, of_few_bits])
def test_words_of_others_are_shown_as_they_are(shown: Any) -> None:
    assert WORDS in " ".join(str(shown()).split())


def test_large_numbers_are_no_powers_of_ten() -> None:
    assert [short(n) for n in (0.01234, 12.34, 99.96, 345.6, 1534.2)] == [
        "0.0123", "12.3", "100", "346", "1,534",
    ]  # fmt: skip
