"""One process draws, others make batches: as torch would have made them, and sooner."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from slipstream.run.loading import ahead, knowledge, scout, staffing
from slipstream.run.loading.crew import Crew
from slipstream.run.loading.knowledge import Knowledge
from slipstream.run.pictures import source
from slipstream.run.pictures.install import install
from tests.run.loading_kit import Compared, always_worth_it, epochs

COUNT = 24
DECODING_S = 0.003


@pytest.fixture(autouse=True)
def _many_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Decoding takes long and needs no core."""
    always_worth_it(monkeypatch)
    monkeypatch.setattr(staffing, "usable_cores", lambda: 6)
    decode = source._decode

    def slow(*given: Any) -> Any:
        time.sleep(DECODING_S)
        return decode(*given)

    monkeypatch.setattr(source, "_decode", slow)
    undo = install()
    yield
    undo()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pictures")
    chance = np.random.default_rng(0)
    for number in range(COUNT):
        size = (40 + number, 50)
        pixels = chance.integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number:02d}.jpg", quality=90)
    return place


class Pictures(Dataset[Any]):
    def __init__(self, folder: Path, by_pixels: bool = False) -> None:
        self.files = sorted(folder.glob("*.jpg"))
        self.by_pixels = by_pixels

    def __len__(self) -> int:
        return 4 * len(self.files)

    def __getitem__(self, index: int) -> Any:
        picture = Image.open(self.files[index % len(self.files)]).convert("RGB")
        left = random.randint(0, picture.width - 20)
        pixels = np.array(picture.crop((left, 0, left + 20, 20)))
        noise = torch.rand(1)
        if self.by_pixels and pixels.sum() % 2:
            noise = noise + np.random.rand()
        return torch.from_numpy(pixels), noise, index


def compared(folder: Path, **options: Any) -> Compared:
    return Compared(
        epochs(lambda: DataLoader(Pictures(folder, **options), batch_size=4, shuffle=True), 2)
    )


def test_batches_are_made_side_by_side_from_what_another_process_drew(folder: Path) -> None:
    found = compared(folder)
    assert found.fixed == found.plain
    assert not found.failures
    assert found.delivered > 30
    assert "one more draws the random numbers" in found.notes


def test_they_come_sooner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds() -> float:
        loader = DataLoader(Pictures(folder), batch_size=4)
        taken = []

        def use() -> Any:
            began = time.monotonic()
            seen = [batch[2].tolist() for _ in range(2) for batch in loader]
            taken.append(time.monotonic() - began)
            return seen

        made = Compared(use)
        assert made.fixed == made.plain
        return taken[-1]

    scouted = seconds()
    monkeypatch.setattr(staffing.Staffing, "may_scout", False)
    assert scouted < 0.8 * seconds()


@pytest.mark.parametrize("is_busy", [False, True])
def test_two_cores_make_batches_where_the_loop_leaves_its_own_idle(
    is_busy: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staffing, "usable_cores", lambda: 2)

    def train() -> list[int]:
        seen, loader = [], DataLoader(Pictures(folder), batch_size=4)
        for batch in (batch for _ in range(3) for batch in loader):
            time.sleep(4 * DECODING_S if is_busy else 0)
            seen += batch[2].tolist()
        return seen

    found = Compared(train)
    assert found.fixed == found.plain
    assert not found.failures
    assert ("made ahead by 2 processes; one more draws" in found.notes) is not is_busy, found.notes


def test_samples_that_draw_by_what_they_see_are_made_one_after_the_other(folder: Path) -> None:
    found = compared(folder, by_pixels=True)
    assert found.fixed == found.plain
    assert not found.failures
    assert found.delivered > 15
    assert found.known[-1].mistakes == 2
    assert not found.known[-1].scouts


def test_a_scout_that_takes_as_long_as_a_batch_is_let_go(folder: Path) -> None:
    class Slowly(Pictures):
        def __getitem__(self, index: int) -> Any:
            time.sleep(0.004)
            return torch.rand(1), index

    found = Compared(epochs(lambda: DataLoader(Slowly(folder), batch_size=4), 2))
    assert found.fixed == found.plain
    assert found.delivered > 15
    assert not found.known[-1].scouts


def test_processes_stay_from_one_epoch_to_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    grow = Crew.grow

    def noted(crew: Crew) -> None:
        started.append(crew)
        grow(crew)

    monkeypatch.setattr(Crew, "grow", noted)
    loader = DataLoader(Pictures(folder), batch_size=4)
    found = Compared(lambda: [len(batch[2]) for _ in range(4) for batch in loader])
    assert found.delivered > 60
    assert len({id(crew) for crew in started}) == 1


def test_a_scout_that_fails_each_time_is_let_go(folder: Path) -> None:
    class SharpEyed(Pictures):
        def __getitem__(self, index: int) -> Any:
            pixels, noise, index = super().__getitem__(index)
            if not pixels.any():
                raise ValueError("an empty picture")
            return pixels, noise, index

    found = Compared(epochs(lambda: DataLoader(SharpEyed(folder), batch_size=4), 2))
    assert found.fixed == found.plain
    assert not found.failures
    assert found.delivered > 15
    assert not found.known[-1].scouts


def test_datasets_need_not_be_comparable(folder: Path) -> None:
    class Comparing(Pictures):
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

        __hash__ = Pictures.__hash__

    loader = DataLoader(Comparing(folder), batch_size=4)
    found = Compared(lambda: [len(batch[2]) for _ in range(3) for batch in loader])
    assert found.fixed == found.plain
    assert not found.failures
    assert found.delivered > 45


def test_a_sample_that_never_ends_without_pixels(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scout, "_LEAST_PATIENCE_S", 0.3)

    class Patches(Pictures):
        def __getitem__(self, index: int) -> Any:
            pixels = np.array(Image.open(self.files[index % len(self.files)]).convert("RGB"))
            while True:
                left = random.randint(0, pixels.shape[1] - 20)
                if pixels[:20, left : left + 20].std() > 1:
                    return torch.from_numpy(pixels[:20, left : left + 20].copy()), index

    began = time.monotonic()
    found = Compared(epochs(lambda: DataLoader(Patches(folder), batch_size=4), 2))
    assert time.monotonic() - began < 20
    assert found.fixed == found.plain
    assert not found.failures
    assert found.delivered > 15
    assert not found.known[-1].scouts


@pytest.mark.parametrize("batch_size", [5, 7])
def test_a_last_batch_that_is_smaller(folder: Path, batch_size: int) -> None:
    def make() -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(1)
        return DataLoader(
            Pictures(folder), batch_size=batch_size, shuffle=True, generator=generator
        )

    found = Compared(epochs(make, 3))
    assert found.fixed == found.plain
    assert not found.failures
    assert found.delivered > 15
    assert found.known[-1].scouts


def test_a_maker_that_dies_does_not_move_the_random_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refill, calls = ahead.Ahead._refill, []

    def dying(self: Any, *states: Any) -> None:
        calls.append(self)
        if len(calls) == 12:
            for child in self._crew.children:
                os.kill(child.pid, signal.SIGKILL)
            time.sleep(0.2)
        refill(self, *states)

    monkeypatch.setattr(ahead.Ahead, "_refill", dying)
    found = compared(folder)
    assert found.fixed == found.plain
    assert not found.failures
    assert "has ended" in found.notes


@pytest.mark.parametrize("draws", [False, True])
def test_a_loop_that_waits_gets_more_processes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, draws: bool
) -> None:
    """A batch takes longer elsewhere than here, as where all threads have made it here."""
    sizes = _sizes_of_crews(monkeypatch)
    found = Compared(lambda: _slower_elsewhere(folder, monkeypatch, draws=draws))
    assert found.fixed == found.plain
    assert not found.failures
    # The loop does nothing, so its core makes batches as well; one more process draws.
    assert max(sizes) == (7 if draws else 6), sizes
    assert found.notes.count("made ahead by") <= 1


def test_where_no_more_processes_are_allowed_those_that_are_there_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = _sizes_of_crews(monkeypatch, most=2)
    found = Compared(lambda: _slower_elsewhere(folder, monkeypatch, draws=False))
    assert found.fixed == found.plain
    assert not found.failures
    assert max(sizes) == 2
    assert found.delivered > 5


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("most", [1, 2])
def test_so_they_do_where_more_are_wanted_from_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, draws: bool
) -> None:
    monkeypatch.setattr(staffing.Staffing, "wanted", 3)
    sizes = _sizes_of_crews(monkeypatch, most)
    found = Compared(lambda: _slower_elsewhere(folder, monkeypatch, draws=draws))
    assert found.fixed == found.plain
    assert not found.failures
    assert max(sizes) == most


def test_batches_under_way_take_a_part_of_the_memory_that_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staffing, "available_bytes", lambda: 0)
    sizes = _sizes_of_crews(monkeypatch)
    found = Compared(lambda: _slower_elsewhere(folder, monkeypatch, draws=False))
    assert found.fixed == found.plain
    assert max(sizes) == 2


def _sizes_of_crews(monkeypatch: pytest.MonkeyPatch, most: int = 100) -> list[int]:
    sizes: list[int] = []
    grow = Crew.grow

    def noted(crew: Crew) -> None:
        if len(crew.children) == most:
            raise OSError("Resource temporarily unavailable")
        grow(crew)
        sizes.append(len(crew.children))

    monkeypatch.setattr(Crew, "grow", noted)
    return sizes


def _slower_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch, *, draws: bool) -> Any:
    """Here a batch takes less than twice as long as the loop with it, elsewhere ten times."""
    here = os.getpid()
    decode = source._decode

    def wait() -> None:
        time.sleep(0.0012 if os.getpid() == here else 0.008)

    def slow(*given: Any) -> Any:
        wait()
        return decode(*given)

    class Slower(Pictures):
        def __getitem__(self, index: int) -> Any:
            if draws:
                return super().__getitem__(index)
            wait()
            return index

    with monkeypatch.context() as patched:
        patched.setattr(source, "_decode", slow)
        seen = []
        for batch in DataLoader(Slower(folder), batch_size=4):
            time.sleep(0.003)
            seen.append(batch[2] if draws else batch)
    return torch.cat(seen).tolist()


def periods(known: Knowledge, seconds: float, *, is_ahead: bool) -> list[bool]:
    """As many as are judged: what was said to each."""
    several = [0.3, 0.3, 0.2, 0.2] if is_ahead else []  # while processes start
    several += [seconds] * (12 if is_ahead else 4)
    return [known.note_period(each, is_ahead=is_ahead, makers=2) for each in several]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Knowledge:
    monkeypatch.setattr(knowledge, "_GAIN", 0.97)
    known = Knowledge([])
    for seconds in (0.5, 0.06, 0.07, 0.07):  # the first step is no measure
        known.note_period(seconds, is_ahead=False, makers=1)
    return known


def test_what_comes_sooner_pays(known: Knowledge) -> None:
    assert periods(known, 0.05, is_ahead=True) == [False] * 15 + [True]
    assert known.pays


def test_what_does_not_is_compared_with_batches_made_here_now(known: Knowledge) -> None:
    assert not any(periods(known, 0.07, is_ahead=True))
    assert known.is_doubted
    assert known.pays is None
    assert periods(known, 0.07, is_ahead=False) == [False] * 3 + [True]
    assert known.pays is False


def test_a_processor_that_became_slower_is_no_reason_to_stop(known: Knowledge) -> None:
    assert not any(periods(known, 0.1, is_ahead=True))
    assert not any(periods(known, 0.15, is_ahead=False))
    assert not known.is_doubted
    assert periods(known, 0.1, is_ahead=True)[-1]
    assert known.pays


def test_doubts_have_an_end(known: Knowledge) -> None:
    seconds = 0.1
    while known.pays is None:
        seconds *= 2
        assert seconds < 5
        periods(known, seconds, is_ahead=True)
        if known.is_doubted:
            periods(known, 1.5 * seconds, is_ahead=False)
    assert known.pays is False
