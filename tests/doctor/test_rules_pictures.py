"""Rules about pictures point at the line that decodes them."""

from slipstream.doctor.capture import Line
from slipstream.doctor.rules import slow_decoder
from tests.doctor.made_case import made_case

_RESIZES = Line("train.py:6", "__getitem__", "resize", "transform: Image.resize", 90)
_DECODES = Line("train.py:5", "__getitem__", "load", "decode: Pillow", 40)


def where(*lines: Line) -> str | None:
    stages = {"decode: Pillow": (36.0, 36.0), "dataset": (4.0, 4.0)}
    [found] = slow_decoder.find(made_case(wait_ms=10, stages=stages, lines=lines))
    return found.where


def test_slow_decoders_are_named_with_the_line_that_decodes() -> None:
    assert where(_RESIZES, _DECODES) == "train.py:5"


def test_without_such_a_line_it_is_where_samples_are_read() -> None:
    assert where(_RESIZES) == "train.py:3"
