"""What a fixed run is compared with: one run of the script, or several that differ."""

import math

import pytest
from torch.utils.data import DataLoader

from slipstream.run.check import Difference, Reference
from slipstream.run.follow import Follower
from slipstream.run.seen import digest
from slipstream.run.trace import Trace


def trace(batches: str, losses: list[float], ended: str = "window", code: int = 0) -> Trace:
    return Trace(
        batches=[(0, name) for name in batches], losses=[loss.hex() for loss in losses],
        ended=ended, exit_code=code,
    )  # fmt: skip


def test_one_run_is_compared_bit_for_bit() -> None:
    reference = Reference((trace("abc", [1.0, 0.5]),))
    assert reference.fault(trace("abc", [1.0, 0.5])) is None
    assert reference.fault(trace("abcd", [1.0, 0.5, 3.0])) is None  # came further
    assert "batch 2" in str(reference.fault(trace("aXc", [1.0, 0.5])))
    assert "backward pass 2" in str(reference.fault(trace("abc", [1.0, 0.5000001])))
    assert reference.compared(trace("ab", [1.0])) == "2 batches and 1 loss are equal, bit for bit"


def test_where_runs_of_the_script_differ_batches_are_still_compared() -> None:
    reference = Reference((trace("abc", [1.0, 0.5]), trace("abX", [1.1, 0.4])))
    assert not reference.agrees
    assert reference.fault(trace("abY", [1.05, 0.45])) is None
    assert "batch 2" in str(reference.fault(trace("aYc", [1.0, 0.5])))
    said = reference.compared(trace("abY", [1.05, 0.45]))
    assert "2 batches are equal" in said
    assert "1 batch differs between runs of the script itself" in said
    assert (
        "2 losses are no further from those of the script than 8 times what its own 2 runs" in said
    )


def test_losses_are_as_near_as_runs_of_the_script_are_to_each_other() -> None:
    noise = [1.0] * 10 + [1.0000001, 1.0000002]
    reference = Reference((trace("", [1.0] * 12), trace("", noise)))
    assert reference.fault(trace("", [1.0] * 11 + [1.0000003])) is None
    assert "pass 12" in str(reference.fault(trace("", [1.0] * 11 + [1.001])))
    # Long before the runs begin to differ, they are equal.
    assert "pass 3" in str(reference.fault(trace("", [1.0, 1.0, 1.0000001])))


def test_a_share_of_a_loss_may_be_near_enough() -> None:
    one = trace("", [2.0])
    assert Reference((one,), least=1e-3).fault(trace("", [2.001])) is None
    assert Reference((one,), least=1e-3).fault(trace("", [2.01])) is not None


def test_losses_that_are_no_numbers_do_not_fail() -> None:
    nan = float("nan")
    reference = Reference((trace("", [nan, 1.0]), trace("", [nan, nan])))
    assert reference.fault(trace("", [nan, 3.0])) is None
    assert Reference((trace("", [nan]),)).fault(trace("", [nan])) is None


def test_a_run_that_ends_otherwise_is_at_fault() -> None:
    reference = Reference((trace("abc", [1.0, 0.5], "script", 3),))
    assert reference.fault(trace("abc", [1.0, 0.5], "script", 3)) is None
    assert str(reference.fault(trace("abc", [1.0, 0.5], "script"))) == "exit code: 3 became 0"
    assert "over after 0 steps with 2 batches" in str(
        reference.fault(trace("ab", [1.0, 0.5], "script", 3))
    )
    assert "1 losses" in str(reference.fault(trace("abc", [1.0], "script", 3)))
    assert "it went on after" in str(reference.fault(trace("abcd", [1.0, 0.5])))
    more_steps = trace("abc", [1.0, 0.5], "script", 3)
    more_steps.ends.append(1.0)
    assert "after 1 steps" in str(reference.fault(more_steps))


def test_windows_may_be_of_any_length() -> None:
    reference = Reference((trace("abc", [1.0, 0.5]),))
    assert reference.fault(trace("ab", [1.0])) is None
    assert reference.fault(trace("abcd", [1.0, 0.5, 0.2], "script", 1)) is None
    assert reference.fault(trace("abc", [1.0, 0.5], "script")) is None
    assert "end: it went on" in str(reference.fault(trace("abc", [1.0], "script")))
    assert "end: it went on" in str(reference.fault(trace("ab", [1.0, 0.5], "script")))
    assert Reference((trace("ab", [1.0], "script"),)).fault(trace("ab", [1.0])) is None
    # Batches behind the first ones have no digests, but are counted.
    long, short = trace("ab", []), trace("ab", [], "script")
    long.ends, short.ends = [1.0] * 40, [1.0] * 30
    assert Reference((long,)).fault(short) is not None
    # Here steps are batches in one of them, and those of an optimizer in the other.
    long, short = trace("ab", [1.0]), trace("ab", [1.0, 0.5], "script")
    long.ends, short.ends = [1.0] * 20, [1.0]
    assert Reference((long,)).fault(short) is None


def test_ends_that_differ_by_themselves_are_not_compared() -> None:
    runs = (trace("abc", [1.0, 0.5], "script"), trace("ab", [1.0], "script"))
    assert not Reference(runs).agrees
    assert Reference(runs).fault(trace("a", [1.0], "script", 1)) is None


class Unreadable:
    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("no words")


def test_losses_that_cannot_be_read_are_not_equal() -> None:
    one, other = (Trace(losses=["0x1p+0", "?", "0x1p+1"]) for _ in range(2))
    assert Reference((one,)).fault(other) is None
    said = Reference((one,)).compared(other)
    assert said == "2 losses are equal, bit for bit; 1 loss could not be read"
    wrong = Trace(losses=["0x1p+0", "0x1p+0", "0x1.8p+1"])
    assert str(Reference((one,)).fault(wrong)) == "loss of backward pass 3: 2.0 became 3.0"
    assert Reference((Trace(losses=["0x1p+0"]),)).fault(Trace(losses=["?"])) is not None


def test_batches_that_cannot_be_read_are_nobodys_fault() -> None:
    one, other = (Trace(batches=[(0, digest(Unreadable())), (0, "a")]) for _ in range(2))
    assert one.batches[0] != other.batches[0]
    assert Reference((one,)).fault(other) is None
    assert Reference((one,)).agrees
    said = Reference((one,)).compared(other)
    assert said == "1 batch is equal, bit for bit; 1 batch could not be read"
    # A fix that makes it so is at fault.
    read = Trace(batches=[(0, "b"), (0, "a")])
    assert "batch 1" in str(Reference((read,)).fault(one))
    assert Reference((one,)).fault(Trace(batches=[(0, "b"), (0, "x")])) is not None


def test_a_run_tells_the_first_difference_while_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Follower()
    plain.start()
    batches = list(DataLoader(range(12), 2))  # type: ignore[arg-type]
    seen = plain.stop()
    expected = Trace(batches=[*seen.batches[:3], (0, "other"), *seen.batches[4:]])
    told: list[tuple[int, Difference]] = []
    taken: list[object] = []
    follower = Follower(
        expected=Reference((expected,)),
        at_difference=lambda difference: told.append((len(taken), difference)),
    )
    follower.start()
    for batch in DataLoader(range(12), 2):  # type: ignore[arg-type]
        taken.append(batch)
    follower.stop()
    assert len(taken) == len(batches)
    ((when, difference),) = told
    assert when == 3
    assert difference.what.startswith("batch 4")
    assert follower.trace.batches == seen.batches  # it went on following


def test_losses_beside_which_the_script_itself_is_wild_are_not_called_near() -> None:
    runs = (trace("ab", [1.0, 2.0]), trace("ab", [1.0, math.inf]))
    said = Reference(runs).compared(trace("ab", [1.0, 5.0]))
    assert "2 losses could not be compared, as runs of the script itself are too far apart" in said
    assert "no further" not in said
