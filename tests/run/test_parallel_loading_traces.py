"""What samples leave behind beside a batch is there as without batches made ahead."""

import contextlib
import gc
import io
import logging
import logging.handlers
import os
import queue
import shutil
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from slipstream.run.fixes import parallel_loading
from tests.run.loading_kit import (
    SIZE,
    Slow,
    check_equal,
    check_left_alone,
    epochs,
    flat,
    patient,
    situation,
)

pytestmark = pytest.mark.usefixtures("alone_or_scouted")


class Writing(Slow):
    """Has a stream, and writes to it."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    def __getitem__(self, index: int) -> Any:
        print(index, file=self.stream)
        return super().__getitem__(index)


def test_a_file_that_the_dataset_writes_to_has_all_lines(tmp_path: Path) -> None:
    def use() -> Any:
        with (tmp_path / "samples.log").open("w") as log:
            dataset = Writing(log)
            batches = [flat(batch) for batch in DataLoader(dataset, batch_size=4)]
        return batches, (tmp_path / "samples.log").read_text()

    check_left_alone(use, "open for writing")


def test_text_in_memory_that_the_dataset_writes_to_has_all_lines() -> None:
    def use() -> Any:
        dataset = Writing(io.StringIO())
        batches = [flat(batch) for batch in DataLoader(dataset, batch_size=4)]
        return batches, dataset.stream.getvalue()

    check_left_alone(use, "may write")


class Seeking(Slow):
    """Reads from a file that it holds open."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = path.open("rb", buffering=0)

    def __getitem__(self, index: int) -> Any:
        self.file.seek(8 * index)
        return np.frombuffer(self.file.read(8), np.int64).copy(), super().__getitem__(index)

    def __del__(self) -> None:
        self.file.close()


def test_a_file_that_is_held_open_and_that_the_loop_writes_anew_is_read_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data.bin"

    def use() -> Any:
        path.write_bytes(np.arange(SIZE).tobytes())
        seen = []
        for number, batch in enumerate(DataLoader(Seeking(path), batch_size=2)):
            patient()
            seen.append(flat(batch))
            if number in (15, 30):
                descriptor = os.open(path, os.O_WRONLY)
                os.write(descriptor, np.arange(number, number + SIZE).tobytes())
                os.close(descriptor)
        return seen

    check_equal(use, at_least=10)


def test_a_file_that_is_read_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(np.arange(SIZE).tobytes())
    check_equal(
        epochs(lambda: DataLoader(Seeking(tmp_path / "data.bin"), batch_size=4)), at_least=10
    )


class Saying(Slow):
    """Says something of some samples, late."""

    def __init__(self, say: Callable[[int], Any]) -> None:
        super().__init__()
        self.say = say

    def __getitem__(self, index: int) -> Any:
        if index in (40, 41, 60):
            self.say(index)
        return super().__getitem__(index)


LOG = logging.getLogger("tests.samples")


@contextlib.contextmanager
def handled(handler: logging.Handler) -> Iterator[None]:
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    LOG.addHandler(handler)
    try:
        yield
    finally:
        LOG.removeHandler(handler)


class Tee:
    """As scripts put it in the place of standard output."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        self.lines.append(text)

    def flush(self) -> None:
        pass


def in_memory() -> Any:
    kept = logging.handlers.MemoryHandler(1000)
    return handled(kept), lambda: [record.getMessage() for record in kept.buffer]


def in_a_queue() -> Any:
    kept: queue.Queue[Any] = queue.Queue()
    handler = logging.handlers.QueueHandler(kept)
    return handled(handler), lambda: [record.getMessage() for record in kept.queue]


def redirected() -> Any:
    kept = io.StringIO()
    return contextlib.redirect_stdout(kept), kept.getvalue


def by_a_tee() -> Any:
    kept = Tee()
    return contextlib.redirect_stderr(kept), lambda: kept.lines  # type: ignore[type-var]


def collected() -> Any:
    @contextlib.contextmanager
    def collecting() -> Iterator[None]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            kept.append(found)
            yield

    kept: list[Any] = []
    return collecting(), lambda: [str(one.message) for one in kept[0]]


OUTLETS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "MemoryHandler": (in_memory, lambda index: LOG.info("sample %d", index)),
    "QueueHandler": (in_a_queue, lambda index: LOG.info("sample %d", index)),
    "redirect_stdout": (redirected, print),
    "redirect_stderr": (by_a_tee, lambda index: print(index, file=sys.stderr)),
    "catch_warnings": (collected, lambda index: warnings.warn(f"sample {index}", stacklevel=1)),
}


@pytest.mark.parametrize(("outlet", "say"), OUTLETS.values(), ids=OUTLETS)
def test_what_samples_say_is_heard_where_it_would_be(outlet: Any, say: Any) -> None:
    def use() -> Any:
        around, heard = outlet()
        with around:
            seen = [
                (flat(batch), patient(), [*heard()])
                for batch in DataLoader(Saying(say), batch_size=2)
            ]
        assert len(heard()) >= 3
        return seen

    check_equal(use, at_least=10)


def test_records_that_nobody_takes_are_no_hindrance() -> None:
    def use() -> Any:
        with handled(logging.NullHandler()):
            loader = DataLoader(Saying(lambda index: LOG.info("sample %d", index)), batch_size=2)
            return [(flat(batch), patient()) for batch in loader]

    compared = check_equal(use, at_least=10)
    assert "prints" not in compared.notes
    assert not compared.known[-1].misses


class Cached(Slow):
    """What a sample was made of is kept by a library of C."""

    def __init__(self, folder: Path) -> None:
        super().__init__("torch")
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        path = self.folder / f"{index}.c"
        if path.exists():
            return {"x": torch.arange(8.0), "index": index}
        made = super().__getitem__(index)
        torch._C.PyTorchFileWriter(str(path)).write_end_of_file()  # type: ignore[call-arg]
        return {"x": made["x"], "index": index}


def test_files_of_a_library_of_c_are_there_when_the_loop_comes_to_them(tmp_path: Path) -> None:
    """Samples that find theirs draw nothing: the first ones are there from an earlier run."""
    folder = tmp_path / "cache"

    def use() -> Any:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for index in range(40):
            (folder / f"{index}.c").touch()
        seen = []
        for batch in DataLoader(Cached(folder), batch_size=2):
            seen.append(flat(batch))
            patient()
            if len(seen) == 25:
                break
        return seen, sorted(path.name for path in folder.iterdir())

    compared = check_equal(use, at_least=5)
    assert "Permission denied" in compared.notes


class Seeding(Slow):
    """Pairs of crops have one seed, which torch gives to devices as well."""

    def __getitem__(self, index: int) -> Any:
        torch.manual_seed(index)
        return super().__getitem__(index)


def test_seeds_are_for_devices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_left_alone(epochs(lambda: DataLoader(Seeding("torch"), batch_size=2)), "seeds the device")


class Trainer:
    """Leads to its loader, which leads back by its collate function."""

    def __init__(self) -> None:
        self.data = Slow()
        self.loader = DataLoader(self.data, batch_size=30, collate_fn=self.collate)

    def collate(self, samples: Any) -> Any:
        return default_collate(samples)


def test_loaders_that_their_own_functions_lead_to_do_not_pile_up() -> None:
    undo = parallel_loading.apply(situation())
    data = []
    for _ in range(9):
        trainer = Trainer()
        data.append(weakref.ref(trainer.data))
        assert len(list(trainer.loader)) == 3
        del trainer
    gc.collect()
    undo()
    assert sum(each() is not None for each in data) <= 4
