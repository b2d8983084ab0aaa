"""Batches made ahead are torch's own where the loop changes what is far from plain to see:
settings, single entries of what is long, how many samples a batch has, and generators that samples
seed.
"""

import decimal
import logging
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ImageFile
from torch.utils.data import DataLoader

from slipstream.run.loading.watch import Watch
from tests.run.loading_kit import (
    Compared,
    Slow,
    check_equal,
    check_left_alone,
    flat,
    patient,
)

pytestmark = pytest.mark.usefixtures("alone_or_scouted")


class Reading(Slow):
    """Samples are what `read` finds in `held`."""

    def __init__(self, held: Any, read: Callable[[Any, int], Any], count: int = 200) -> None:
        super().__init__(seconds=0.001)
        self.held, self.read, self.count = held, read, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        super().__getitem__(index % 90)
        return self.read(self.held, index)


CHANGED_FROM = 40  # batches of four


def loop(make: Callable[[], Reading], change: Callable[[Any, int], None]) -> Callable[[], Any]:
    def use() -> Any:
        dataset = make()
        found = []
        for step, batch in enumerate(DataLoader(dataset, batch_size=4, collate_fn=list)):
            found.append(flat(batch))
            patient()
            if step >= CHANGED_FROM:
                change(dataset.held, 4 * step + 6)  # of the next batch
        return found

    return use


def wide_rows() -> Any:
    return np.ones((200, 30_000), np.float32)


def in_place(held: Any, index: int) -> None:
    held[min(index, 199)] *= 2


def by_name() -> Any:
    names = [f"photo {index}" for index in range(3000)]
    return {"names": names, "labels": dict.fromkeys(names, 1)}


def relabel(held: Any, index: int) -> None:
    held["labels"][f"photo {index}"] = index


def module() -> types.ModuleType:
    made = types.ModuleType("settings_of_a_script")
    made.__file__ = __file__
    made.SIZE = 4  # type: ignore[attr-defined]
    return made


def resize(held: Any, index: int) -> None:
    held.SIZE = index


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any, int], Any], Any]] = {
    "few wide rows": (wide_rows, lambda held, index: float(held[index].sum()), in_place),
    "list of arrays": (
        lambda: [np.ones(12_000, np.uint8) for _ in range(1000)],
        lambda held, index: int(held[index].sum()),
        lambda held, index: held[index][5000:5100].fill(7),
    ),
    "list of tensors": (
        lambda: [torch.ones(3000) for _ in range(300)],
        lambda held, index: float(held[index].sum()),
        lambda held, index: held[index].numpy()[1000:1100].fill(7),
    ),
    "dictionary by names": (
        by_name,
        lambda held, index: held["labels"][held["names"][index]],
        relabel,
    ),
    "module": (module, lambda held, index: held.SIZE * index, resize),
}


def in_no_time(look: Callable[[], Any], seconds: float) -> tuple[Any, float]:
    """There is some for a quick look, and none for what is long but for entries of the batch."""
    is_quick = getattr(look, "__func__", None) is Watch.is_same
    return look(), 0.0 if is_quick else 2 * seconds


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_loop_changes_somewhere_inside(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, read, change = CHANGES[name]
    monkeypatch.setattr("slipstream.run.loading.held._timed", in_no_time)
    check_equal(loop(lambda: Reading(make(), read), change), at_least=20)


def test_files_that_are_mapped_to_be_changed_here_alone(tmp_path: Path) -> None:
    file = tmp_path / "rows.npy"
    np.save(file, np.ones((200, 30_000), np.float32))
    check_equal(
        loop(
            lambda: Reading(
                np.load(file, mmap_mode="c"), lambda held, index: float(held[index].sum())
            ),
            in_place,
        ),
        at_least=20,
    )


class Scaling(torch.nn.Module):
    scale: float

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scripted_modules_are_left_alone() -> None:
    scripted = torch.jit.script(Scaling())  # type: ignore[no-untyped-call]
    dataset = Reading(scripted, lambda held, index: held(torch.full((3,), float(index))))

    def use() -> Any:
        return [flat(batch) for batch in DataLoader(dataset, batch_size=4)]

    check_left_alone(use, "into which nobody can look")


def multiplied(held: Any, index: int) -> Any:
    return ((held * (index + 0.3)) @ held).float()


def tiny(held: Any, index: int) -> Any:
    return str(decimal.Decimal(index) / 7)


def cast(enabled: bool) -> None:
    torch.set_autocast_enabled("cpu", enabled)


def precise(enabled: bool) -> None:
    decimal.getcontext().prec = 5 if enabled else 28


def threaded(enabled: bool) -> None:
    torch.set_num_threads(2 if enabled else 1)


def torn(enabled: bool) -> None:
    ImageFile.LOAD_TRUNCATED_IMAGES = enabled


SETTINGS: dict[str, tuple[Any, Callable[[Any, int], Any], Callable[[bool], None]]] = {
    "autocast": (torch.linspace(0, 1, 64).reshape(8, 8), multiplied, cast),
    "decimal": (None, tiny, precise),
    "torn files": (None, lambda held, index: ImageFile.LOAD_TRUNCATED_IMAGES, torn),
    "threads": (
        torch.linspace(0, 1, 300_000), lambda held, index: (held * (index + 1.1)).sum(), threaded,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_change_in_the_middle(name: str) -> None:
    held, read, switch = SETTINGS[name]

    def use() -> Any:
        threads = torch.get_num_threads()
        switch(False)
        found = []
        try:
            for step, batch in enumerate(DataLoader(Reading(held, read), batch_size=4)):
                found.append(flat(batch))
                patient()
                if step == CHANGED_FROM:
                    switch(True)
        finally:
            switch(False)
            torch.set_num_threads(threads)
        return found

    compared = check_equal(use, at_least=0)
    assert compared.delivered >= 20 or name == "threads", compared.notes


def test_records_that_the_loop_begins_to_take() -> None:
    logger = logging.getLogger("a dataset of the tests")

    def read(held: Any, index: int) -> int:
        logger.debug("sample %d", index)
        return index

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            taken.append(record.getMessage())

    handler = Kept()
    taken: list[str] = []

    def use() -> Any:
        taken.clear()
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        try:
            for step, _ in enumerate(DataLoader(Reading(None, read), batch_size=4)):
                patient()
                if step == CHANGED_FROM:
                    logger.setLevel(logging.DEBUG)
        finally:
            logger.removeHandler(handler)
        return [*taken]

    compared = check_equal(use, at_least=20)
    assert len(compared.plain[0]) >= 4 * 8


def of_a_model(held: Any, index: int) -> Any:
    return held * index  # with a graph, which cannot travel


def conjugated(held: Any, index: int) -> Any:
    return torch.complex(torch.ones(3), torch.full((3,), float(index))).conj()


@pytest.mark.parametrize("read", [of_a_model, conjugated])
def test_one_loader_that_cannot_be_made_ahead_is_none_of_anothers_business(read: Any) -> None:
    held = torch.ones(3, requires_grad=True)

    def use() -> Any:
        odd = [
            [part.is_conj() for part in batch]
            for batch in DataLoader(Reading(held, read), batch_size=4, collate_fn=list)
        ]
        usual = [flat(batch) for batch in DataLoader(Reading(None, tiny), batch_size=4)]
        return odd, usual

    compared = check_equal(use, at_least=0)
    assert not compared.failures
    assert compared.delivered >= 8, compared.notes


def seeds_all(held: Any, index: int) -> Any:
    torch.manual_seed(7)
    return index + torch.rand(1)


def seeds_some(held: Any, index: int) -> Any:
    if index % 30 == 29:
        np.random.seed(7)
    return index


def asks_some(held: Any, index: int) -> Any:
    return torch.initial_seed() if index % 40 == 39 else index


@pytest.mark.parametrize("read", [seeds_all, seeds_some, asks_some])
def test_generators_that_samples_seed_are_where_they_leave_them(read: Any) -> None:
    def use() -> Any:
        found = []
        for step, batch in enumerate(DataLoader(Reading(None, read), batch_size=4)):
            found.append((flat(batch), torch.rand(2).tolist(), np.random.rand(2).tolist()))
            patient()
            if step > CHANGED_FROM and read is asks_some:
                torch.manual_seed(step)
        return found

    check_equal(use, at_least=0)


NOTHING = object()


def some_or_nothing(samples: list[int]) -> Any:
    return NOTHING if samples[0] % 28 == 0 and samples[0] else torch.tensor(samples)


def test_objects_that_are_one_and_the_same() -> None:
    dataset = Reading(None, lambda held, index: index)

    def use() -> Any:
        found: list[Any] = []
        for batch in DataLoader(dataset, batch_size=4, collate_fn=some_or_nothing):
            patient()
            found.append("nothing" if batch is NOTHING else flat(batch))
        return found

    compared = check_equal(use, at_least=10)
    assert compared.plain[0].count("nothing") >= 6


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_that_become_larger(shuffle: bool, drop_last: bool) -> None:
    def use() -> Any:
        loader = DataLoader(
            Reading(None, lambda held, index: index), batch_size=3, shuffle=shuffle,
            drop_last=drop_last,
        )  # fmt: skip
        found = []
        for step, batch in enumerate(loader):
            found.append(flat(batch))
            patient()
            if step in (30, 34):
                loader.batch_sampler.batch_size = 7 if step == 30 else 2  # type: ignore[union-attr]
        return found

    check_equal(use, at_least=15)


@pytest.mark.parametrize("count", [200, 198])
@pytest.mark.parametrize("with_generator", [True, False])
def test_a_dataset_that_grows_in_the_last_step(count: int, with_generator: bool) -> None:
    def use() -> Any:
        own = torch.Generator().manual_seed(0) if with_generator else None
        dataset = Reading(None, lambda held, index: index, count)
        found = []
        for epoch in range(2):
            loader = DataLoader(dataset, batch_size=4, shuffle=True, generator=own)
            last = len(loader) - 1
            for step, batch in enumerate(loader):
                found.append((epoch, flat(batch)))
                patient()
                if step == last:
                    dataset.count += 3
        return found

    check_equal(use, at_least=20)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_script_that_waits_for_all_of_its_processes(workers: int) -> None:
    script = f"""
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

import slipstream

class Slow(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((8,), float(index))

with slipstream.faster("parallel-loading", "fast-loader") as speed:
    loader = DataLoader(Slow(), batch_size=8, num_workers={workers})
    for _ in range(2):
        for batch in loader:
            time.sleep(0.005)
    for _ in range(3):
        os.spawnlp(os.P_NOWAIT, "true", "true")
    ended = 0
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
        ended += 1
    assert [batch[0, 0].item() for batch in loader] == [8.0 * n for n in range(50)]
print(ended)
print(speed)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("3\n")
    what = "live on from one epoch" if workers else "made ahead by"
    assert what in " ".join(found.stdout.split()), found.stdout


def test_what_was_wrong_may_have_been_so_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.run.loading.ahead.digest", lambda batch: "")
    monkeypatch.setattr("slipstream.run.loading.ahead.Ahead._look_at_verification", _as_if_verified)
    dataset = Reading(None, lambda held, index: index)
    with pytest.warns(UserWarning, match="may not have been either: start anew with --skip"):
        compared = Compared(
            lambda: [(flat(batch), patient()) for batch in DataLoader(dataset, batch_size=2)]
        )
    assert compared.failures


def _as_if_verified(self: Any, crew: Any) -> None:
    number = self._verifying[0]
    if crew.wait_for(number, 5.0) is not None:
        self._verifying = None
        self._known.verified = self._held
        self._expected = "another", {}
        self._work()
