"""Every test here must leave its process as it found it."""

import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest
import torch

import slipstream
from tests.augment.standins import v1
from tests.faults.datasets import Numbers
from tests.faults.leftovers import holdings, left_behind
from tests.pictures import write_flat

PICTURES = 24
MakeLoader = Callable[..., slipstream.Loader]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing waits without an end: neither does a test."""
    for item in items:
        if "tests/faults" in str(item.path) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(60))


@pytest.fixture(scope="session")
def picture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_flat(tmp_path_factory.mktemp("faults") / "pictures", PICTURES)


@pytest.fixture(scope="session")
def packed(picture_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pictures packed into several shards. Not to be changed."""
    from slipstream.pack.pack import pack_source
    from slipstream.pack.sources.detect import open_source

    path = tmp_path_factory.mktemp("faults_packed") / "pictures.slip"
    pack_source(open_source(picture_folder), path, shard_bytes=30_000)
    return path


def engine_loader(path: Path, **options: Any) -> slipstream.Loader:
    """A loader on the native engine, with small crops."""
    transform = [v1.RandomResizedCrop(32), v1.ToTensor()]
    options = {"batch_size": 4, "transform": transform, **options}
    return slipstream.Loader(slipstream.open_dataset(path), **options)


@pytest.fixture
def engine(packed: Path) -> MakeLoader:
    return lambda **options: engine_loader(packed, **options)


@pytest.fixture(scope="session")
def warm(packed: Path) -> None:
    """Starts what torch, the engine and multiprocessing keep by design, before it is counted."""
    resource_tracker.ensure_running()
    for _ in range(3):
        list(engine_loader(packed))
    list(slipstream.Loader(Numbers(8), 4, num_workers=2))
    torch.ones(1 << 22).add_(1).sum()


@pytest.fixture(autouse=True)
def nothing_left(warm: None) -> Iterator[None]:
    """Compares what this process holds before and after each test."""
    before = holdings()
    yield
    more = left_behind(before, patience_s=5)
    assert not more, f"left behind: {more}"
    assert threading.main_thread().is_alive()
