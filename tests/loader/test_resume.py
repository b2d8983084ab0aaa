"""Training that stops anywhere and goes on: the same batches, with any workers and any ranks."""

import functools
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from slipstream.errors import UsageError
from slipstream.loader import loader as loader_module
from slipstream.loader.loader import Loader
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from slipstream.store.dataset import open_dataset
from tests.augment import standins
from tests.loader import made_data
from tests.loader.made_data import Made, SizedStream, epoch_of, plain
from tests.pictures import jpeg

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

COUNT = 23
EPOCHS = 3
Make = Callable[..., Loader[Any]]  # num_workers by keyword


class Backwards(Sampler[int]):
    """An order of the user's own, the same every time."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(COUNT - 1, -1, -1))

    def __len__(self) -> int:
        return COUNT


@pytest.fixture(scope="module")
def picture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures") / "flat"
    for number in range(COUNT):
        path = folder / "ab"[number % 2] / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(60 + number, 50, number))
    return folder


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, picture_folder: Path) -> Path:
    path = tmp_path_factory.mktemp("packed") / "pictures.slip"
    pack_source(open_source(picture_folder), path, shard_bytes=20_000)
    return path


def augmented(path: Path, *extra: Any, **arguments: Any) -> Loader[Any]:
    """Pictures with random crops and flips."""
    v1 = standins.v1
    transform = [v1.RandomResizedCrop(20), v1.RandomHorizontalFlip(), *extra, v1.ToTensor()]
    options = {"batch_size": 4, "shuffle": True, "seed": 3, **arguments}
    return Loader(open_dataset(path), transform=transform, **options)


def of_python(make: Any, count: int = COUNT, **arguments: Any) -> Loader[Any]:
    options = {"batch_size": 4, "shuffle": True, "seed": 3, **arguments}
    return Loader(Made(make, count), **options)


def of_tensors(width: int, **arguments: Any) -> Loader[Any]:
    rows = torch.arange(COUNT * width, dtype=torch.float32).view(COUNT, width)
    options = {"batch_size": 4, "shuffle": True, "seed": 3, **arguments}
    return Loader(TensorDataset(rows, torch.arange(COUNT)), **options)


def with_sampler(sampler: Callable[[], dict[str, Any]], **arguments: Any) -> Loader[Any]:
    """The sampler is made anew, as it is when a training starts again."""
    return Loader(Made(made_data.a_tuple, COUNT), **{"batch_size": 4, **sampler(), **arguments})


def seeded(number: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(number)


# Whether the order is ours, and so can be dealt to any number of ranks.
OWN: dict[str, Make] = {
    "shuffled": functools.partial(of_python, made_data.a_dict),
    "in order": functools.partial(of_python, made_data.a_tuple, shuffle=False),
    "drop last": functools.partial(of_python, made_data.a_tuple, drop_last=True),
    "collate_fn": functools.partial(of_python, made_data.custom, collate_fn=tuple),
    "without batching": functools.partial(of_python, made_data.nested, batch_size=None),
    "one by one": functools.partial(of_python, made_data.a_number, batch_size=1),
    "tensors": functools.partial(of_tensors, 3),
    "large tensors": functools.partial(of_tensors, 30_000),
}
SAMPLERS: dict[str, Make] = {
    "own sampler": functools.partial(with_sampler, lambda: {"sampler": Backwards()}),
    "generator": functools.partial(with_sampler, lambda: {"shuffle": True, "generator": seeded()}),
    "sampler's generator": functools.partial(
        with_sampler, lambda: {"sampler": RandomSampler(range(COUNT), generator=seeded())}
    ),
    "weighted": functools.partial(
        with_sampler,
        lambda: {"sampler": WeightedRandomSampler([1.0] * COUNT, 30, generator=seeded())},
    ),
    "batch sampler": functools.partial(
        with_sampler,
        lambda: {"batch_size": 1, "batch_sampler": BatchSampler(Backwards(), 5, False)},
    ),
    "iterable": lambda **arguments: Loader(
        SizedStream(COUNT), **{"batch_size": 4, "collate_fn": numbers_of, **arguments}
    ),
}


def numbers_of(samples: list[dict[str, Any]]) -> list[int]:
    return [sample["k"] for sample in samples]


def undisturbed(make: Make, **arguments: Any) -> list[list[Any]]:
    """All epochs of a run that nothing stops."""
    loader = make(**arguments)
    return [epoch_of(loader) for _ in range(EPOCHS)]


def stopped(make: Make, batches: int, **arguments: Any) -> tuple[list[Any], dict[str, Any]]:
    """What a run gave until it was stopped after so many batches, and its state, as a file of a
    checkpoint holds it.
    """
    loader = make(**arguments)
    had: list[Any] = []
    while len(had) < batches:
        for batch in loader:
            had.append(plain(batch))
            if len(had) == batches:
                break
    state = loader.state_dict()
    text = json.dumps(state)
    assert len(text) < 1000 or "generator" in state or "draw" in state
    return had, json.loads(text)


def resumed(make: Make, state: dict[str, Any], epochs: int, **arguments: Any) -> list[list[Any]]:
    loader = make(**arguments)
    length = len(loader)
    loader.load_state_dict(state)
    assert len(loader) == length
    return [epoch_of(loader) for _ in range(epochs)]


def check_every_cut(make: Make, before: int, after: int, cuts: Any = None) -> None:
    """Stop a run everywhere; go on with other workers; compare with one that was not stopped."""
    expected = undisturbed(make, num_workers=after)
    length = len(expected[0])
    for cut in range(1, 2 * length + 1) if cuts is None else cuts:
        had, state = stopped(make, cut, num_workers=before)
        assert had == list(itertools.chain(*expected))[:cut]
        epoch, place = divmod(cut, length)
        if place == 0:
            # In the loop's last turn: its epoch has nothing left.
            epoch, place = epoch - 1, length
        rest = resumed(make, state, EPOCHS - epoch, num_workers=after)
        assert rest == [expected[epoch][place:], *expected[epoch + 1 :]]


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 1), (2, 0)])
def test_any_batch_can_be_the_last(kind: str, before: int, after: int) -> None:
    cuts = None if before == after == 0 else (1, 4)
    check_every_cut(OWN[kind], before, after, cuts)


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 2)])
def test_orders_of_the_user_s_own(kind: str, before: int, after: int) -> None:
    check_every_cut(SAMPLERS[kind], before, after, None if before == 0 else (1, 4, 8))


WORKERS = (0, 1, 2, 4)


@pytest.mark.long
@pytest.mark.parametrize("kind", [*OWN, *SAMPLERS])
@pytest.mark.parametrize("before", WORKERS)
@pytest.mark.parametrize("after", WORKERS)
def test_any_batch_can_be_the_last_with_any_workers(kind: str, before: int, after: int) -> None:
    if kind == "iterable" and before != after:
        pytest.skip("which worker reads what is the dataset's own affair")
    check_every_cut({**OWN, **SAMPLERS}[kind], before, after)


@pytest.mark.parametrize("source", ["packed", "folder"])
@pytest.mark.parametrize("form", ["native", "with Python"])
def test_augmented_pictures_are_the_same_bytes(
    packed: Path, picture_folder: Path, source: str, form: str
) -> None:
    path = packed if source == "packed" else picture_folder
    extra = () if form == "native" else (standins.v1.ColorJitter(),)
    make = functools.partial(augmented, path, *extra)
    assert ("native engine" in repr(make())) == (form == "native")
    expected = undisturbed(make)
    assert expected[0] != expected[1]
    for before, after in ((0, 0), (0, 2), (2, 0), (1, 2)):
        check_every_cut(make, before, after, (1, 3, 6, 8))


@pytest.mark.long
@pytest.mark.parametrize("before", WORKERS)
@pytest.mark.parametrize("after", WORKERS)
@pytest.mark.parametrize("form", ["native", "with Python"])
def test_augmented_pictures_with_any_workers(
    packed: Path, picture_folder: Path, before: int, after: int, form: str
) -> None:
    extra = () if form == "native" else (standins.v1.ColorJitter(),)
    for path in (packed, picture_folder):
        check_every_cut(functools.partial(augmented, path, *extra), before, after)


def test_pictures_do_not_depend_on_workers_ranks_or_batches(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample's crop is a function of seed, epoch and number."""

    def by_key(batches: Any) -> dict[str, bytes]:
        return {
            key: plain(image)
            for batch in batches
            for key, image in zip(batch["key"], batch["image"], strict=True)
        }

    expected = by_key(augmented(packed))
    for arguments in ({"batch_size": 7}, {"num_workers": 1}, {"shuffle": False}):
        assert by_key(augmented(packed, **arguments)) == expected
    found: dict[str, bytes] = {}
    for rank in range(3):
        monkeypatch.setattr(loader_module, "rank_and_world", lambda rank=rank: (rank, 3))
        found.update(by_key(augmented(packed)))
    assert found == expected


DRAWN = functools.partial(of_python, made_data.drawn)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 2)])
def test_what_a_dataset_draws_in_workers(before: int, after: int) -> None:
    """Random numbers of Python, NumPy and torch: each batch has its own, whoever makes it."""
    check_every_cut(DRAWN, before, after, (1, 4, 6, 7))


@pytest.mark.long
@pytest.mark.parametrize("before", WORKERS[1:])
@pytest.mark.parametrize("after", WORKERS[1:])
def test_what_a_dataset_draws_in_any_workers(before: int, after: int) -> None:
    check_every_cut(DRAWN, before, after)


def test_what_a_dataset_draws_differs_between_batches_epochs_and_seeds() -> None:
    loader = DRAWN(num_workers=1, persistent_workers=True)
    found = [number for _ in range(2) for batch in loader for number in batch[1].tolist()]
    loader.close()
    found += [number for batch in DRAWN(num_workers=1, seed=4) for number in batch[1].tolist()]
    assert len(set(found)) == 3 * COUNT


# Ranks.


class Ranks:
    """Loaders of several ranks, one after the other in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, make: Make) -> None:
        self._monkeypatch = monkeypatch
        self._make = make
        self.world = 1

    def run(
        self, world: int, steps: int | None, state: dict[str, Any] | None, workers: int = 0
    ) -> tuple[list[list[Any]], dict[str, Any]]:
        """The batches of each rank in `steps` steps, or up to the end, and the state after them."""
        found, states = [], []
        for rank in range(world):
            # As a launcher sets them.
            self._monkeypatch.setenv("RANK", str(rank))
            self._monkeypatch.setenv("WORLD_SIZE", str(world))
            loader = self._make(num_workers=workers)
            if state is not None:
                loader.load_state_dict(state)
            batches = iter(loader)
            found.append(list(itertools.islice(batches, steps)))
            states.append(loader.state_dict())
            batches.close()
        assert all(other == states[0] for other in states), "states of ranks differ"
        assert len({len(own) for own in found}) == 1, "ranks have different numbers of batches"
        return found, json.loads(json.dumps(states[0]))


def numbers_in(found: list[list[Any]]) -> Counter[int]:
    """Sample numbers in the batches of all ranks."""
    counts: Counter[int] = Counter()
    for batch in itertools.chain(*found):
        counts.update(torch.as_tensor(batch).flatten().tolist())
    return counts


@pytest.mark.parametrize("worlds", [(1, 2, 3, 1), (3, 1, 2, 4), (4, 3, 3, 2)])
@pytest.mark.parametrize("arguments", [
    {}, {"batch_size": 1}, {"batch_size": None}, {"shuffle": False}, {"batch_size": 3},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_other_numbers_of_ranks_go_on(
    monkeypatch: pytest.MonkeyPatch, worlds: tuple[int, ...], arguments: Any, steps: int
) -> None:
    # So many that none of the stages comes to the end of the epoch.
    many = 101
    ranks = Ranks(monkeypatch, functools.partial(of_python, made_data.a_number, many, **arguments))
    state, had = None, Counter[int]()
    for world in worlds[:-1]:
        found, state = ranks.run(world, steps, state)
        had += numbers_in(found)
    assert all(times == 1 for times in had.values())
    found, state = ranks.run(worlds[-1], None, state)
    rest = numbers_in(found)
    assert not had.keys() & rest.keys()
    assert had.keys() | rest.keys() == set(range(many))
    # Only where a last step cannot give every rank one: with batches of one sample.
    repeated = rest.total() - len(rest)
    assert repeated == 0 or (arguments.get("batch_size", 4) in (1, None))
    assert repeated < worlds[-1]
    # The next epoch is a whole one.
    found, _ = ranks.run(2, None, state)
    assert numbers_in(found).keys() == set(range(many))


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_every_cut_between_every_number_of_ranks(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    ranks = Ranks(monkeypatch, functools.partial(of_python, made_data.a_number, batch_size=2))
    for first, second, third in itertools.product((1, 2, 3), repeat=3):
        for cut in range(COUNT // (2 * first) + 1):
            found, state = ranks.run(first, cut, None, workers)
            had = numbers_in(found)
            found, state = ranks.run(second, 1, state, workers)
            had += numbers_in(found)
            found, state = ranks.run(third, None, state, workers)
            had += numbers_in(found)
            assert had.keys() == set(range(COUNT))
            assert had.total() <= COUNT + 3


def test_drop_last_on_other_ranks_drops_less_than_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    make = functools.partial(of_python, made_data.a_number, batch_size=2, drop_last=True)
    ranks = Ranks(monkeypatch, make)
    found, state = ranks.run(3, 2, None)
    had = numbers_in(found)
    found, _ = ranks.run(2, None, state)
    had += numbers_in(found)
    assert all(times == 1 for times in had.values())
    assert COUNT - 2 * 2 < had.total() <= COUNT


def test_a_resumed_rank_has_the_batches_it_would_have_had(
    monkeypatch: pytest.MonkeyPatch, packed: Path
) -> None:
    ranks = Ranks(monkeypatch, functools.partial(augmented, packed, batch_size=2))
    whole, _ = ranks.run(2, None, None)
    first, state = ranks.run(2, 3, None)
    rest, _ = ranks.run(2, None, state)
    for rank in range(2):
        together = [plain(batch) for batch in first[rank] + rest[rank]]
        assert together == [plain(batch) for batch in whole[rank]]


# States.

SHUFFLED = OWN["shuffled"]


def test_a_state_is_a_few_plain_numbers() -> None:
    loader = SHUFFLED()
    assert loader.state_dict() == {
        "version": 1, "epoch": 0, "position": 0, "order": "keyed", "samples": COUNT, "seed": 3,
        "shuffle": True,
    }  # fmt: skip
    batches = iter(loader)
    next(batches)
    assert loader.state_dict()["position"] == 4
    text = json.dumps(loader.state_dict())
    assert len(text) < 200


def test_at_the_start_there_is_nothing_to_leave_out() -> None:
    for make in (*OWN.values(), *SAMPLERS.values()):
        expected = undisturbed(make)
        loader = make()
        states = [loader.state_dict()]
        batches = iter(loader)
        states.append(loader.state_dict())
        for state in states:
            assert resumed(make, state, EPOCHS) == expected
        del batches


@pytest.mark.parametrize("kind", ["shuffled", "tensors", "own sampler", "generator", "iterable"])
def test_after_the_loop_the_next_epoch_is_next(kind: str) -> None:
    make = {**OWN, **SAMPLERS}[kind]
    expected = undisturbed(make)
    loader = make()
    for batch in loader:
        inside = loader.state_dict()
        del batch
    after = loader.state_dict()
    # Inside the last turn the epoch is not over: its rest is empty. After the loop it is.
    assert resumed(make, inside, 3) == [[], *expected[1:]]
    assert resumed(make, after, 2) == expected[1:]


def test_a_state_can_be_loaded_again() -> None:
    expected = undisturbed(SHUFFLED)
    _, state = stopped(SHUFFLED, 2)
    _, other = stopped(SHUFFLED, 5)
    loader = SHUFFLED()
    loader.load_state_dict(other)
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert epoch_of(loader) == expected[0][2:]
    assert epoch_of(loader) == expected[1]
    loader.load_state_dict(state)
    assert [epoch_of(loader), epoch_of(loader)] == [expected[0][2:], expected[1]]
    # And in the middle of an iteration.
    batches = iter(loader)
    next(batches)
    loader.load_state_dict(state)
    assert epoch_of(loader) == expected[0][2:]


@pytest.mark.parametrize("kind", [*OWN, *SAMPLERS])
def test_checkpoints_after_checkpoints(kind: str) -> None:
    """One batch, a checkpoint, a new process; over and over."""
    make = {**OWN, **SAMPLERS}[kind]
    expected = list(itertools.chain(*undisturbed(make)))
    found: list[Any] = []
    state = make().state_dict()
    while len(found) < len(expected):
        loader = make()
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert loader.state_dict() == state
        batch = next(iter(loader), None)
        if batch is None:
            # The loop of that epoch has ended; its state after the loop is the next epoch's.
            assert loader.state_dict()["position"] == 0
        else:
            found.append(plain(batch))
        state = loader.state_dict()
    assert found == expected


def test_loading_does_not_change_the_state_given() -> None:
    _, state = stopped(SAMPLERS["generator"], 2)
    kept = json.loads(json.dumps(state))
    resumed(SAMPLERS["generator"], state, 2)
    assert state == kept


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 4}, "its seed is 3, here it is 4"),
        ({"shuffle": False}, "its shuffle is True, here it is False"),
        ({"sampler": Backwards(), "shuffle": None}, "its order is 'keyed', here it is 'sampler'"),
        ({"generator": torch.Generator()}, "its order is 'keyed', here it is 'sampler'"),
    ],
)
def test_states_of_other_loaders_are_refused(changed: dict[str, Any], message: str) -> None:
    _, state = stopped(SHUFFLED, 2)
    loader = SHUFFLED(**changed)
    with pytest.raises(UsageError, match=message):
        loader.load_state_dict(state)
    assert loader.state_dict()["position"] == 0


def test_states_of_other_data_and_versions_are_refused() -> None:
    _, state = stopped(SHUFFLED, 2)
    other = Loader(Made(made_data.a_dict, COUNT + 1), batch_size=4, shuffle=True, seed=3)
    with pytest.raises(UsageError, match=f"its samples is {COUNT}, here it is {COUNT + 1}"):
        other.load_state_dict(state)
    for wrong in ({**state, "version": 2}, {k: v for k, v in state.items() if k != "version"}):
        with pytest.raises(UsageError, match="no state of a Loader: version"):
            SHUFFLED().load_state_dict(wrong)
    for name, value in (("epoch", -1), ("position", 2.5), ("epoch", None), ("position", True)):
        with pytest.raises(UsageError, match="damaged"):
            SHUFFLED().load_state_dict({**state, name: value})
    for wrong in ({}, None, "state"):
        with pytest.raises(UsageError, match="no state of a Loader"):
            SHUFFLED().load_state_dict(wrong)  # type: ignore[arg-type]


def test_another_batch_size_goes_on_too() -> None:
    _, state = stopped(functools.partial(of_python, made_data.a_number), 3)
    loader = of_python(made_data.a_number, batch_size=5)
    loader.load_state_dict(state)
    rest = torch.cat(list(loader)).tolist()
    whole = torch.cat(list(of_python(made_data.a_number))).tolist()
    assert rest == whole[12:]


def test_set_epoch_after_loading() -> None:
    """Loops call it at the beginning of every epoch, the resumed one among them."""
    expected = undisturbed(SHUFFLED)
    _, state = stopped(SHUFFLED, 8)
    loader = SHUFFLED()
    loader.load_state_dict(state)
    found = []
    for epoch in (1, 2):
        loader.set_epoch(epoch)
        found.append(epoch_of(loader))
    assert found == [expected[1][2:], expected[2]]
    loader.load_state_dict(state)
    loader.set_epoch(0)
    assert epoch_of(loader) == expected[0]


# Loops that do not run through.


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["shuffled", "tensors", "large tensors", "without batching"])
def test_after_a_break_the_state_is_where_the_loop_was(kind: str, workers: int) -> None:
    make = OWN[kind]
    loader = make(num_workers=workers)
    for number, batch in enumerate(loader):
        del batch
        if number == 2:
            break
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (0, 3 if kind == "without batching" else 12)
    # A new loop is a new epoch, and then its state counts.
    batches = iter(loader)
    assert loader.state_dict() == state
    next(batches)
    assert loader.state_dict()["epoch"] == 1


def test_nested_iterations_do_not_disturb_each_other() -> None:
    for make in (SHUFFLED, OWN["tensors"], OWN["large tensors"]):
        expected = undisturbed(make)
        loader = make()
        outer: list[Any] = []
        for number, batch in enumerate(loader):
            outer.append(plain(batch))
            if number == 1:
                assert epoch_of(loader) == expected[1]
                # The inner one was the last to begin, and it is over.
                assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (2, 0)
        assert outer == expected[0]
        assert epoch_of(loader) == expected[2]


@pytest.mark.parametrize("kind", ["shuffled", "large tensors", "packed"])
def test_what_was_made_ahead_does_not_count(kind: str, packed: Path) -> None:
    """However long the loop takes over its first batch: the rest is not lost."""
    make = functools.partial(augmented, packed) if kind == "packed" else OWN[kind]
    arguments = {"num_workers": 2, "prefetch_factor": 4}
    loader = make(**arguments)
    batches = iter(loader)
    next(batches)
    time.sleep(0.7)
    assert batches._source.waiting > 0 or kind == "shuffled"
    state = loader.state_dict()
    batches.close()
    assert state["position"] == 4
    assert resumed(make, state, 1) == [undisturbed(make)[0][1:]]


def first_is_late(k: int) -> int:
    if k == 0:
        time.sleep(0.5)
    return k


def test_batches_out_of_order_are_never_missed() -> None:
    """With in_order=False what came before its turn comes again; nothing is left out."""
    make = functools.partial(of_python, first_is_late, shuffle=False, num_workers=2, in_order=False)
    for cut in (1, 3, 5):
        loader = make()
        batches = iter(loader)
        had = torch.cat([next(batches) for _ in range(cut)]).tolist()
        state = loader.state_dict()
        batches.close()
        later = make()
        later.load_state_dict(state)
        rest = torch.cat(list(later)).tolist()
        assert set(had) | set(rest) == set(range(COUNT))
        assert min(rest) == min(set(range(COUNT)) - set(had))


def test_a_random_sampler_without_a_generator_gives_the_rest_of_its_order() -> None:
    """It draws from the global generator, whose state then is part of the loader's; the generator
    itself is left alone.
    """

    def make(**arguments: Any) -> Loader[Any]:
        sampler = RandomSampler(range(COUNT))
        return Loader(Made(made_data.a_number, COUNT), batch_size=4, sampler=sampler, **arguments)

    for before, after in itertools.product((0, 2), (0, 2)):
        loader = make(num_workers=before)
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        rest = [plain(batch) for batch in batches]
        torch.manual_seed(5)
        again = make(num_workers=after)
        again.load_state_dict(state)
        found = iter(again)
        first = plain(next(found))
        drawn = torch.rand(1)
        torch.manual_seed(5)
        torch.empty((), dtype=torch.int64).random_()  # the seed of the workers
        assert torch.equal(drawn, torch.rand(1))
        assert [first, *(plain(batch) for batch in found)] == rest


def test_a_shuffled_sampler_without_a_generator_that_the_user_restores() -> None:
    """torch draws its seed from the global generator: who restores that has the same order."""

    def make(**arguments: Any) -> Loader[Any]:
        torch.manual_seed(1)
        sampler = SubsetRandomSampler(range(COUNT))
        return Loader(Made(made_data.a_number, COUNT), batch_size=4, sampler=sampler, **arguments)

    expected = undisturbed(make)
    _, state = stopped(make, 3)
    assert "generator" not in state
    assert resumed(make, state, 2) == [expected[0][3:], expected[1]]
