"""Workers and prefetch that are chosen while training, over a clock that tests move."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.errors import UsageError
from slipstream.loader import tuning
from slipstream.loader.auto import AutoCount, auto_count
from slipstream.loader.choice import Choice
from slipstream.loader.loader import Loader
from slipstream.loader.made import Made
from slipstream.loader.route import WORKERS, Route
from slipstream.loader.tuning import Tuner
from tests.loader import made_data


class Training:
    """A loop whose steps take `step_s`, fed by workers who take `batch_s` for a batch. Workers
    share `cores`; every other thing is ideal.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, step_s: float, batch_s: float, cores: int = 8,
        workers: int = 1, ahead: int = 2, batch_bytes: int = 1000, free_bytes: int = 1 << 40,
        may_change: str = "workers",
    ) -> None:  # fmt: skip
        self.now = 100.0
        self.step_s, self.batch_s, self.cores = step_s, batch_s, cores
        self.batch_bytes = batch_bytes
        # Batches of uneven cost: what a longer queue evens out.
        self.stall_s: Callable[[int, int], float] = lambda workers, prefetch: 0.0
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr(tuning, "time", clock)
        memory = SimpleNamespace(available=free_bytes)
        monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
        self.choice = Choice("", "", Route(WORKERS, ""), workers, ahead, "as given")
        self.tuner = Tuner(
            self.choice, core_limit=cores, workers="workers" in may_change,
            prefetch="prefetch" in may_change,
        )  # fmt: skip

    def run(self, batches: int = 400) -> "Training":
        for _ in range(batches):
            choice = self.choice
            rate = min(choice.workers, self.cores) / self.batch_s
            wait_s = max(0.0, 1 / rate - self.step_s)
            wait_s += self.stall_s(choice.workers, choice.prefetch)
            self.now += wait_s
            self.tuner.made(Made(None, 1, self.batch_bytes, fetch_s=self.batch_s))
            self.tuner.observe(wait_s)
            self.now += self.step_s
        return self

    @property
    def seen(self) -> list[str]:
        """What was changed, without the reasons."""
        return [line.split(":")[0] for line in self.choice.history]


def test_workers_are_added_while_the_loop_waits_for_busy_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Training(monkeypatch, step_s=0.1, batch_s=0.35).run()
    assert training.choice.workers == 4
    assert training.seen == ["workers 1 → 2", "workers 2 → 3", "workers 3 → 4"]
    first = training.choice.history[0]
    assert "the loop waits 71% of the time, workers are busy 100%" in first
    assert training.choice.workers_why in training.choice.history[-1]


def test_no_more_workers_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.01, batch_s=1.0, cores=3).run()
    assert training.choice.workers == 3
    assert training.seen == ["workers 1 → 2", "workers 2 → 3"]


def test_what_brings_no_gain_is_taken_back_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk that gives so much and no more, however many ask."""
    training = Training(monkeypatch, step_s=0.05, batch_s=0.4, workers=2)
    training.cores = 2
    training.run(1000)
    assert training.choice.workers == 2
    assert training.seen == ["workers 2 → 3", "workers 3 → 2"]
    assert "batches/s" in training.choice.history[1] and "no gain" in training.choice.history[1]


def test_idle_workers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.2, batch_s=0.1, workers=4).run()
    assert training.choice.workers == 1
    assert training.seen == ["workers 4 → 3", "workers 3 → 2", "workers 2 → 1"]
    assert "the loop waits 0% of the time" in training.choice.history[0]


def test_a_worker_too_few_is_taken_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle by the average, and needed all the same: the loop gets slower without it."""
    training = Training(monkeypatch, step_s=0.2, batch_s=0.1, workers=3)
    training.stall_s = lambda workers, prefetch: 0.0 if workers >= 3 else 0.05
    training.run(1000)
    assert training.choice.workers == 3
    assert training.seen == ["workers 3 → 2", "workers 2 → 3"]


def test_more_ahead_where_workers_idle_and_the_loop_waits_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Uneven batches: not more hands, but a longer queue."""
    training = Training(
        monkeypatch, step_s=0.2, batch_s=0.1, workers=4, may_change="workers, prefetch"
    )
    training.stall_s = lambda workers, prefetch: max(0, 5 - prefetch) * 0.02
    training.run()
    assert training.choice.prefetch == 5
    assert training.seen[:3] == ["prefetch 2 → 3", "prefetch 3 → 4", "prefetch 4 → 5"]


def test_more_ahead_where_workers_are_at_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(
        monkeypatch, step_s=0.2, batch_s=0.3, workers=2, cores=2, may_change="workers, prefetch"
    )
    training.stall_s = lambda workers, prefetch: max(0, 4 - prefetch) * 0.05
    training.run()
    assert training.seen[:2] == ["prefetch 2 → 3", "prefetch 3 → 4"]
    assert training.choice.workers == 2


def test_batches_ahead_fit_into_a_share_of_the_free_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quarter of 8 GB for batches of 256 MB of two workers: four ahead each."""
    training = Training(
        monkeypatch, step_s=0.2, batch_s=0.1, workers=2, cores=2, may_change="workers, prefetch",
        batch_bytes=256 << 20, free_bytes=8 << 30,
    )  # fmt: skip
    training.stall_s = lambda workers, prefetch: max(0, 6 - prefetch) * 0.05
    training.run()
    assert training.choice.prefetch == 4


def test_prefetch_alone_leaves_workers_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.1, batch_s=0.35, workers=2, may_change="prefetch")
    training.run()
    assert training.choice.workers == 2


def test_nothing_is_changed_where_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(
        monkeypatch, step_s=0.2, batch_s=0.35, workers=2, may_change="workers, prefetch"
    ).run(1000)
    assert training.choice.history == []
    assert training.choice.workers_why == "as given"


def test_a_choice_is_made_again_when_the_balance_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.1, batch_s=0.35).run()
    assert training.choice.workers == 4
    training.step_s = 0.4  # a larger model
    training.run()
    assert training.choice.workers < 4
    training.step_s = 0.1
    training.run()
    assert training.choice.workers == 4


def test_what_was_given_up_is_tried_again_at_another_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.05, batch_s=0.4, workers=2)
    training.cores = 2
    training.run()
    assert training.seen == ["workers 2 → 3", "workers 3 → 2"]
    training.cores = 8  # a neighbour has left the disk, and the loop is another one
    training.step_s = 0.12
    training.run()
    assert training.choice.workers == 4


def test_starting_the_workers_is_no_reason_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch waits for processes to start, in every epoch."""
    training = Training(monkeypatch, step_s=0.2, batch_s=0.25, workers=2)
    for _ in range(5):
        training.tuner.begin()
        training.now += 3.0
        training.tuner.observe(3.0)
        training.run(12)
    assert training.choice.history == []


def test_few_batches_are_no_ground_for_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, step_s=0.1, batch_s=0.35)
    training.run(8)
    assert training.choice.history == []
    quick = Training(monkeypatch, step_s=0.0001, batch_s=0.0004)
    quick.run(300)
    assert quick.choice.history == []


# "auto" as an argument.


def test_auto_is_a_number_that_can_be_handed_on() -> None:
    count = auto_count("num_workers", "auto")
    assert isinstance(count, int) and type(count) is AutoCount and count >= 1
    assert auto_count("num_workers", count) is count
    assert auto_count("prefetch_factor", None) is None
    with pytest.raises(
        UsageError, match="prefetch_factor is 'lots', expected a number or \"auto\""
    ):
        auto_count("prefetch_factor", "lots")


def test_only_what_is_auto_is_tuned() -> None:
    data = made_data.Made(made_data.a_number)
    assert Tuner.of(Loader(data, num_workers=1)) is None
    loader = Loader(data, num_workers="auto")
    first = Tuner.of(loader)
    assert first is not None and Tuner.of(loader) is first
    only_ahead = Tuner.of(Loader(data, num_workers=1, prefetch_factor="auto"))
    assert only_ahead is not None
    assert not only_ahead._may_change_workers and only_ahead._may_change_prefetch


def slow(k: int) -> int:
    time.sleep(0.04)
    return k


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_a_slow_dataset_gets_more_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that wait and use no core, so that four workers help on any machine."""
    monkeypatch.setattr(tuning, "usable_cores", lambda: 4)
    loader = Loader(made_data.Made(slow, 160), batch_size=1, shuffle=True, num_workers="auto")
    loader.choice.workers = 1
    found: list[Any] = []
    for batch in loader:
        found.append(batch.item())
    assert sorted(found) == list(range(160)), "a change of workers lost or doubled a sample"
    assert loader.choice.workers > 1, loader.choice.history
    assert loader.choice.history[0].startswith("workers 1 → 2: the loop waits")
    assert f"workers: {loader.choice.workers} (" in repr(loader)
    # What was chosen holds for the next epoch.
    changes = len(loader.choice.history)
    batches = iter(loader)
    for _ in range(4):  # none is started while a batch is there
        next(batches)
        if len(batches._workers) == loader.choice.workers:
            break
    assert len(batches._workers) == loader.choice.workers
    assert len(loader.choice.history) == changes
    batches.close()
