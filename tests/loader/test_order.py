"""The shuffled order as a training loop sees it: fair, new every epoch, and stored nowhere."""

import itertools
import math
import os
import random
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils.data import Dataset

from slipstream.loader.loader import Loader
from slipstream.loader.sampler import ShuffledSampler

Order = npt.NDArray[np.int64]
Shuffle = Callable[[int, int], Order]  # of count and epoch


class Numbers(Dataset[int]):
    """Sample k is k."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices


def loader_order(count: int, epoch: int, seed: int = 5) -> Order:
    loader = Loader(Numbers(count), batch_size=1000, shuffle=True, seed=seed, collate_fn=list)
    loader.set_epoch(epoch)
    return np.array([index for batch in loader for index in batch])


def torch_order(count: int, epoch: int) -> Order:
    return torch.randperm(count, generator=torch.Generator().manual_seed(epoch)).numpy()


def unshuffled(count: int, epoch: int) -> Order:
    return np.arange(count)


def rotated(count: int, epoch: int) -> Order:
    return (np.arange(count) + 7919 * epoch + 13) % count


def strided(count: int, epoch: int) -> Order:
    """A linear congruence: looks wild, is a lattice."""
    step = next(s for s in itertools.count(count // 3 + 2 * epoch) if math.gcd(s, count) == 1)
    return (np.arange(count) * step + epoch) % count


def shuffle_buffer(count: int, epoch: int, size: int = 500) -> Order:
    """What streaming loaders do: a sample can hardly get far ahead."""
    draw = random.Random(epoch)
    held: list[int] = []
    out: list[int] = []
    for index in range(count):
        held.append(index)
        if len(held) == size:
            out.append(held.pop(draw.randrange(size)))
    draw.shuffle(held)
    return np.array(out + held)


def always_the_same(count: int, epoch: int) -> Order:
    return torch_order(count, 0)


def biased(count: int, epoch: int) -> Order:
    """The classic mistake: swap every place with any other."""
    draw = np.random.default_rng(epoch)
    order = np.arange(count)
    for place, other in enumerate(draw.integers(0, count, count).tolist()):
        order[place], order[other] = order[other], order[place]
    return order


def chi_deviation(observed: npt.NDArray[np.int64], expected: float) -> float:
    """How far a chi-square sum lies from its mean, in standard deviations."""
    freedom = observed.size - 1
    total = ((observed - expected) ** 2 / expected).sum()
    return float((total - freedom) / math.sqrt(2 * freedom))


def oddities(shuffle: Shuffle, count: int, epochs: int) -> dict[str, float]:
    """What tells an order from uniform ones, each in standard deviations of a uniform order's."""
    orders = np.stack([shuffle(count, epoch) for epoch in range(epochs)])
    assert (np.sort(orders, axis=1) == np.arange(count)).all()
    places = np.arange(count)
    cells = 16
    of_place = places * cells // count
    # How often a sample of one part of the data comes in one part of the epoch.
    landed = np.zeros((cells, cells), np.int64)
    for order in orders:
        np.add.at(landed, (of_place, order * cells // count), 1)
    # Which samples follow each other, and how far they lie from one another.
    pairs = orders[:, :-1] * cells // count * cells + orders[:, 1:] * cells // count
    steps = 1 - (1 - np.abs(np.diff(orders, axis=1)) / count) ** 2
    per_cell = epochs * (count - 1) / cells**2
    correlations = [
        abs(np.corrcoef(one, other)[0, 1]) * math.sqrt(count)
        for one, other in itertools.combinations([places, *orders], 2)
    ]
    fixed = sum(int((order == places).sum()) for order in orders)
    return {
        "landing": abs(chi_deviation(landed.ravel(), epochs * count / cells**2)),
        "neighbours": abs(chi_deviation(np.bincount(pairs.ravel(), minlength=cells**2), per_cell)),
        "steps": abs(chi_deviation(np.histogram(steps, 32, (0, 1))[0], epochs * (count - 1) / 32)),
        "correlation": max(correlations),
        "fixed points": abs(fixed - epochs) / math.sqrt(epochs),
    }


LIMIT = 5.0


@pytest.mark.parametrize("count", [1000, 9_973, 70_001])
@pytest.mark.parametrize("shuffle", [loader_order, torch_order])
def test_order_cannot_be_told_from_uniform_ones(shuffle: Shuffle, count: int) -> None:
    """torch's own beside ours: the measure must not ask for more than chance gives."""
    found = oddities(shuffle, count, epochs=12)
    assert max(found.values()) < LIMIT, found


@pytest.mark.parametrize("shuffle", [unshuffled, rotated, strided, shuffle_buffer, always_the_same])
def test_bad_shuffles_are_found(shuffle: Shuffle) -> None:
    found = oddities(shuffle, 9_973, epochs=12)
    assert max(found.values()) > 2 * LIMIT, found


def chi_of_all_orders(shuffle: Shuffle, count: int, draws: int) -> float:
    counts = dict.fromkeys(itertools.permutations(range(count)), 0)
    for epoch in range(draws):
        counts[tuple(shuffle(count, epoch).tolist())] += 1
    return chi_deviation(np.array(list(counts.values())), draws / len(counts))


def sampler_order(count: int, epoch: int) -> Order:
    sampler = ShuffledSampler(range(count), seed=11)
    sampler.set_epoch(epoch)
    return np.array(list(sampler))


def test_all_orders_of_few_samples_are_equally_likely() -> None:
    assert abs(chi_of_all_orders(sampler_order, 4, 6000)) < 4
    assert chi_of_all_orders(biased, 4, 6000) > 8


def test_a_sample_may_come_at_any_place() -> None:
    """One sample followed over many epochs and, apart from that, over many seeds."""
    for orders in (
        [loader_order(50, epoch) for epoch in range(1500)],
        [loader_order(50, 0, seed) for seed in range(1500)],
    ):
        places = np.argmax(np.stack(orders) == 17, axis=1)
        assert abs(chi_deviation(np.bincount(places, minlength=50), 1500 / 50)) < 4.5
        # Nor does its place in one epoch tell of its place in the next.
        assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 4.5 / math.sqrt(1500)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [loader_order(3000, epoch, seed) for seed in (0, 1, 2**40) for epoch in range(4)]
    for one, other in itertools.combinations(orders, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / math.sqrt(3000)
        assert (one == other).sum() < 10


def test_each_iteration_is_the_next_epoch() -> None:
    loader = Loader(Numbers(300), batch_size=7, shuffle=True, seed=5)
    for epoch in (0, 1, 2):
        assert torch.cat(list(loader)).tolist() == loader_order(300, epoch).tolist()


def test_the_same_seed_gives_the_same_order_whatever_torch_was_seeded_with() -> None:
    torch.manual_seed(1)
    first = loader_order(300, 0)
    torch.manual_seed(2)
    np.testing.assert_array_equal(loader_order(300, 0), first)
    assert loader_order(300, 0, seed=6).tolist() != first.tolist()


def test_set_epoch_chooses_and_then_counts_on() -> None:
    loader = Loader(Numbers(300), batch_size=300, shuffle=True, seed=5)
    for epoch in (4, 0, 4, 9):
        loader.set_epoch(epoch)
        assert next(iter(loader)).tolist() == loader_order(300, epoch).tolist()
    assert next(iter(loader)).tolist() == loader_order(300, 10).tolist()
    # Frameworks call it after iter() and before the first batch, or more than once.
    batches = iter(loader)
    loader.set_epoch(1)
    loader.set_epoch(2)
    assert next(batches).tolist() == loader_order(300, 2).tolist()


def test_sampler_has_the_loader_s_order() -> None:
    """For frameworks that take the loader apart and keep its sampler."""
    loader = Loader(Numbers(70_001), batch_size=64, shuffle=True, seed=5)
    assert type(loader.sampler) is ShuffledSampler
    assert len(loader.sampler) == 70_001
    for epoch in (0, 1):
        assert list(loader.sampler) == loader_order(70_001, epoch).tolist()
    loader.sampler.set_epoch(7)
    assert list(loader.sampler) == loader_order(70_001, 7).tolist()
    batches = list(loader.batch_sampler)
    assert list(itertools.chain(*batches)) == loader_order(70_001, 8).tolist()
    # Having been looked at there does not move the loader itself; `set_epoch` did.
    assert torch.cat(list(loader)).tolist() == loader_order(70_001, 7).tolist()


def test_ranks_deal_out_the_order_of_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    dealt: list[list[list[int]]] = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        loader = Loader(Numbers(100), batch_size=4, shuffle=True, seed=5)
        dealt.append([batch.tolist() for batch in loader])
    together = [index for step in zip(*dealt, strict=True) for batch in step for index in batch]
    assert together == list(ShuffledSampler(range(100), seed=5))


MANY = 10_000_000


@pytest.mark.parametrize("workers", [0, 2])
def test_ten_million_samples_take_no_memory(workers: int) -> None:
    """torch holds 80 MB of tensor and some 400 MB of Python integers for this."""
    tracemalloc.start()
    try:
        loader = Loader(Numbers(MANY), batch_size=64, shuffle=True, num_workers=workers)
        batches = iter(loader)
        had = [next(batches) for _ in range(20)]
        state = loader.state_dict()
        resumed = Loader(Numbers(MANY), batch_size=64, shuffle=True, num_workers=workers)
        resumed.load_state_dict({**state, "position": MANY - 640})
        had.extend(resumed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        batches.close()
    assert len(torch.cat(had).unique()) == 30 * 64
    assert peak < 8 << 20


def test_the_measure_of_memory_sees_a_stored_order() -> None:
    tracemalloc.start()
    list(itertools.islice(torch.utils.data.RandomSampler(Numbers(MANY // 20)), 5))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak > 8 << 20


_RESIDENT = """
import sys
import torch
from torch.utils.data import DataLoader
from slipstream.loader.loader import Loader
from tests.loader.test_order import Numbers, resident_bytes

class Weighed(Numbers):
    def __getitems__(self, indices):
        return [resident_bytes()] * len(indices)

def weigh(kind, count):
    # In the workers, and here, once some batches have come.
    loader = kind(Weighed(count), batch_size=64, shuffle=True, num_workers=1)
    batches = iter(loader)
    theirs = max(int(next(batches).max()) for _ in range(8))
    return resident_bytes(), theirs

kind = {"torch": DataLoader, "ours": Loader}[sys.argv[1]]
small = weigh(kind, 10_000)
large = weigh(kind, 10_000_000)
print(large[0] - small[0], large[1] - small[1])
"""


def resident_bytes() -> int:
    """Memory of this process, native memory included."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  called often
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_no_process_holds_an_order_of_ten_million() -> None:
    def weigh(kind: str) -> list[int]:
        done = subprocess.run(
            [sys.executable, "-c", _RESIDENT, kind],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, check=True, timeout=100,
        )  # fmt: skip
        return [int(word) for word in done.stdout.split()]

    ours, in_worker = weigh("ours")
    assert ours < 8 << 20 and in_worker < 8 << 20
    # The measure sees what torch holds, so it would see ours.
    assert max(weigh("torch")) > 64 << 20
