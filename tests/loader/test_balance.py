"""Who decodes, measured while training, over a clock that tests move."""

from types import SimpleNamespace

import pytest

from slipstream.loader import balance as balancing
from slipstream.loader.balance import Balance
from slipstream.loader.choice import Choice
from slipstream.loader.route import ENGINE, Route


class Training:
    """A loop on a GPU. A batch takes `step_s` of it to train and, if the GPU decodes all of it,
    `gpu_s` more; the processor needs `cpu_s` for one, beside the loop. Everything else is ideal.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, step_s: float, cpu_s: float, gpu_s: float,
        share: float | None = None,
    ) -> None:  # fmt: skip
        self.now = 100.0
        self.step_s, self.cpu_s, self.gpu_s = step_s, cpu_s, gpu_s
        monkeypatch.setattr(balancing, "time", SimpleNamespace(perf_counter=lambda: self.now))
        self.choice = Choice("", "", Route(ENGINE, ""), 8, 2, "as given")
        self.balance = Balance(self.choice, share=share)
        self.shares: list[float] = []

    def run(self, batches: int = 400) -> "Training":
        for _ in range(batches):
            share = self.balance.share
            on_gpu_s = self.step_s + share * self.gpu_s
            on_cpu_s = (1 - share) * self.cpu_s
            wait_s = max(0.0, on_cpu_s - on_gpu_s)
            self.now += wait_s
            self.balance.observe(wait_s)
            self.now += on_gpu_s
            if not self.shares or self.shares[-1] != share:
                self.shares.append(share)
        return self

    def run_epochs(self, epochs: int, batches: int) -> "Training":
        for _ in range(epochs):
            self.balance.begin()
            self.run(batches)
        return self


def test_the_processor_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.1, cpu_s=0.3, gpu_s=0.01)
    assert training.balance.share == 0.0
    assert training.choice.decode == "on the processor"
    assert training.choice.decode_why == "to begin with; measured in training"
    assert training.choice.history == []


def test_a_processor_that_keeps_up_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.1, cpu_s=0.05, gpu_s=0.01).run(2000)
    assert training.shares == [0.0], "the GPU was not even tried"
    assert training.choice.decode == "on the processor"
    assert training.choice.decode_why == "the processor keeps up, the GPU is left to training"
    assert training.choice.history == [
        "decoding on the processor: 10.0 batches/s, the loop waits 0% of the time"
    ]


def test_the_gpu_is_tried_where_the_loop_waits_then_both(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.01, cpu_s=0.04, gpu_s=0.03).run(2000)
    assert training.shares[:2] == [0.0, 1.0]
    assert len(training.choice.history) == 3
    assert 0.0 < training.shares[2] < 1.0


def test_what_trains_fastest_wins_the_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow processor: nothing it could help with would be worth the hand-over."""
    training = Training(monkeypatch, step_s=0.01, cpu_s=2.0, gpu_s=0.01).run(2000)
    assert training.shares == [0.0, 1.0]
    assert training.balance.share == 1.0
    assert training.choice.decode == "on the GPU"
    assert training.choice.decode_why == "batches/s: 0.5 on the processor, 50.0 on the GPU"


def test_what_trains_fastest_wins_the_processor_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop waits a little, and a GPU that trains has no time for more."""
    training = Training(monkeypatch, step_s=0.1, cpu_s=0.105, gpu_s=0.5).run(2000)
    assert training.balance.share == 0.0
    assert training.choice.decode == "on the processor"
    assert training.choice.decode_why.startswith("batches/s: 9.5 on the processor, 1.7 on the GPU")


def test_what_trains_fastest_wins_both_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone the processor gives 25 batches a second and the GPU 25: together they give more."""
    training = Training(monkeypatch, step_s=0.01, cpu_s=0.04, gpu_s=0.03).run(2000)
    share = training.balance.share
    assert 0.0 < share < 1.0
    alone, gpu, both = (float(line.split(": ")[1].split()[0]) for line in training.choice.history)
    assert both > 1.02 * max(alone, gpu)
    assert training.choice.decode == f"{share:.0%} on the GPU"
    assert training.choice.decode_why == (
        f"batches/s: {alone:.1f} on the processor, {gpu:.1f} on the GPU,"
        f" {both:.1f} {share:.0%} on the GPU"
    )


def test_the_part_of_the_gpu_is_what_the_processor_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU makes 100 a second, the processor a quarter of that, if it is asked for all of it."""
    monkeypatch.setattr(balancing, "_MARGIN", 0.8)
    training = Training(monkeypatch, step_s=0.005, cpu_s=0.04, gpu_s=0.005).run(2000)
    assert training.shares == [0.0, 1.0, pytest.approx(1 - 0.8 * 25 / 100)]


def test_ties_go_to_the_smaller_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the GPU does not decode it can train."""
    even = Training(monkeypatch, step_s=0.0998, cpu_s=0.102, gpu_s=0.003).run(2000)
    assert len(even.choice.history) == 3
    assert even.balance.share == 0.0
    # The GPU alone is as fast as both: then both, of which it does less.
    shared = Training(monkeypatch, step_s=0.05, cpu_s=0.1, gpu_s=0.0).run(2000)
    assert shared.shares[:2] == [0.0, 1.0]
    assert 0.0 < shared.balance.share < 1.0


def test_a_decision_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.01, cpu_s=0.04, gpu_s=0.03).run(2000)
    share, lines = training.balance.share, list(training.choice.history)
    training.step_s, training.cpu_s = 0.5, 0.001
    training.run_epochs(5, 1000)
    assert (training.balance.share, training.choice.history) == (share, lines)


def test_every_measurement_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancing, "_MARGIN", 0.5)
    training = Training(monkeypatch, step_s=0.025, cpu_s=0.05, gpu_s=0.025).run(2000)
    assert training.choice.history == [
        "decoding on the processor: 20.0 batches/s, the loop waits 50% of the time",
        "decoding on the GPU: 20.0 batches/s, the loop waits 0% of the time",
        "decoding 50% on the GPU: 26.7 batches/s, the loop waits 0% of the time",
    ]


def test_what_is_said_is_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while something is tried, for who prints the loader then."""
    training = Training(monkeypatch, step_s=0.01, cpu_s=2.0, gpu_s=0.01)
    while training.balance.share == 0.0:
        assert training.choice.decode == "on the processor"
        training.run(1)
    assert training.choice.decode == "on the GPU"


def test_few_batches_are_no_ground_for_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.01, cpu_s=0.4, gpu_s=0.01).run(40)
    assert training.shares == [0.0] and training.choice.history == []
    quick = Training(monkeypatch, step_s=0.0001, cpu_s=0.0004, gpu_s=0.0001).run(400)
    assert quick.shares == [0.0], "a part of a second is no measurement either"


def test_starting_up_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batches wait for threads, for files and for the GPU's own beginnings."""
    training = Training(monkeypatch, step_s=0.1, cpu_s=0.05, gpu_s=0.01)
    for _ in range(10):
        training.now += 3.0
        training.balance.observe(3.0)
    training.run(1000)
    assert training.choice.decode_why.startswith("the processor keeps up")


@pytest.mark.parametrize("batches", [15, 40, 60, 300])
def test_short_epochs_come_to_a_decision_too(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """Between epochs what was made ahead is gone; what was measured is not."""
    training = Training(monkeypatch, step_s=0.01, cpu_s=2.0, gpu_s=0.01)
    training.run_epochs(12_000 // batches, batches)
    assert training.choice.decode == "on the GPU", training.choice.history


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_that_is_given_never_changes(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    training = Training(monkeypatch, step_s=0.01, cpu_s=2.0, gpu_s=0.01, share=share)
    training.run_epochs(3, 500)
    assert training.shares == [share]
    assert training.choice.history == []
    assert training.choice.decode == "", "whoever gave it says what it is called"


def test_a_balance_knows_what_it_was_measured_for(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.01, cpu_s=0.04, gpu_s=0.03)
    assert training.balance.is_of(training.choice)
    assert not training.balance.is_of(Choice("", "", Route(ENGINE, ""), 8, 2, "as given"))
