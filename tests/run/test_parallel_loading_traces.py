"""What samples leave behind beside a batch is there as without batches made ahead."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from tests.run.loading_kit import (
    SIZE,
    Slow,
    always_scouted,
    always_worth_it,
    check_equal,
    check_left_alone,
    epochs,
    flat,
    patient,
)


@pytest.fixture(autouse=True, params=["alone", "scouted"])
def _worth_it(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    always_worth_it(monkeypatch)
    if request.param == "scouted":
        always_scouted(monkeypatch)


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
