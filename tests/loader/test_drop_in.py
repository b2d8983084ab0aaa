"""Beside torch's DataLoader: same arguments, same batches, same random numbers, same errors."""

import copy
import functools
import inspect
import io
import multiprocessing
import pickle
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler

from slipstream.errors import UsageError
from slipstream.loader.auto import AutoCount
from slipstream.loader.loader import Loader
from slipstream.loader.sampler import ShuffledSampler
from slipstream.pack.pack import pack_dataset, pack_source
from slipstream.pack.sources.detect import open_source
from slipstream.store.dataset import open_dataset
from tests.augment import standins
from tests.loader import made_data
from tests.loader.made_data import Made, MadeTogether, SizedStream, Stream, epoch_of, plain
from tests.pictures import jpeg, write_flat

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

Kind = Callable[..., DataLoader[Any]]
KINDS: tuple[Kind, Kind] = (DataLoader, Loader)
OWN = {
    "device": None, "transform": None, "seed": 0, "on_error": "raise", "decode": "auto",
    "progress": False, "static": False,
}  # fmt: skip


def outcome(act: Callable[[], Any]) -> Any:
    """What an act gives, or the error it ends in."""
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def end_at_once(batches: Any) -> None:
    """Left to the garbage collector, each of torch's workers takes five seconds to end."""
    if workers := getattr(batches, "_shutdown_workers", None):
        workers()
    getattr(batches, "close", lambda: None)()


def without_lines(text: str) -> str:
    """An error of a worker without the traceback in it: those run through different files."""
    return re.sub(r"\nOriginal Traceback.*\n(?=\w+Error)", "\n", text, flags=re.S)


# Arguments.


def test_the_signature_is_torch_s_with_our_own_by_keyword() -> None:
    theirs = list(inspect.signature(DataLoader.__init__).parameters.values())
    ours = list(inspect.signature(Loader.__init__).parameters.values())
    for their, our in zip(theirs, ours, strict=False):
        assert (our.name, our.kind, our.default) == (their.name, their.kind, their.default)
    own = ours[len(theirs) :]
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in own)
    assert {parameter.name: parameter.default for parameter in own} == OWN


def test_it_is_a_data_loader() -> None:
    assert issubclass(Loader, DataLoader)
    assert set(vars(DataLoader([1]))) <= set(vars(Loader([1])))


numbers = Made(made_data.a_number)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 3},
        {"num_workers": 1, "prefetch_factor": -3},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": [1]},
        {"batch_sampler": [[1]], "batch_size": 4},
        {"batch_sampler": [[1]], "shuffle": True},
        {"batch_sampler": [[1]], "sampler": [1]},
        {"batch_sampler": [[1]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"batch_size": -2},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"multiprocessing_context": "fork"},
        {"num_workers": 1, "multiprocessing_context": "spoon"},
        {"num_workers": 1, "multiprocessing_context": 5},
        {"dataset": Stream(), "shuffle": True},
        {"dataset": Stream(), "sampler": [1]},
        {"dataset": Stream(), "batch_sampler": [[1]]},
        {"dataset": [], "shuffle": True},
    ],
    ids=lambda arguments: re.sub(" at 0x[0-9a-f]+", "", str(arguments)),
)
def test_wrong_arguments_are_refused_as_torch_refuses_them(arguments: dict[str, Any]) -> None:
    arguments = {"dataset": numbers, **arguments}
    theirs, ours = (outcome(lambda kind=kind: kind(**arguments)) for kind in KINDS)
    assert isinstance(theirs, tuple), "torch takes this: not a case for this test"
    assert ours == theirs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed is -1, expected an integer from 0"),
        ({"seed": 1.0}, "seed is 1.0"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"on_error": "ignore"}, "on_error is 'ignore', expected one of raise, skip, substitute"),
        ({"decode": "tpu"}, "decode is 'tpu'"),
        ({"num_workers": "many"}, "num_workers is 'many', expected a number or \"auto\""),
        ({"num_workers": 1, "prefetch_factor": "far"}, "prefetch_factor is 'far'"),
        ({"transform": abs}, "Made makes its own samples: give the transform to it"),
    ],
    ids=str,
)
def test_wrong_arguments_of_our_own(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Loader(numbers, **arguments)


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_some_attributes_cannot_be_set_afterwards(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after Loader"):
        setattr(Loader(numbers), name, None)


def test_what_was_given_can_be_read() -> None:
    arguments: dict[str, Any] = {
        "batch_size": 3, "num_workers": 2, "collate_fn": list, "pin_memory": False,
        "drop_last": True, "timeout": 60, "worker_init_fn": print, "generator": torch.Generator(),
        "prefetch_factor": 5, "persistent_workers": True, "in_order": False,
    }  # fmt: skip
    theirs, ours = DataLoader(numbers, **arguments), Loader(numbers, **arguments)
    for name, value in arguments.items():
        assert getattr(ours, name) == getattr(theirs, name) == value
    for name in ("sampler", "batch_sampler"):
        assert isinstance(getattr(ours, name), type(getattr(theirs, name)))
    assert ours.multiprocessing_context is None


# Batches.

COLLATABLE = [
    made_data.a_number, made_data.a_float, made_data.a_bool, made_data.a_text,
    made_data.some_bytes, made_data.a_tuple, made_data.a_list, made_data.a_dict, made_data.nested,
    made_data.a_namedtuple, made_data.numpy_arrays, made_data.numpy_scalars, made_data.transposed,
    made_data.large, made_data.empty_tensors, made_data.every_dtype, made_data.shared_tensor,
]  # fmt: skip
NOT_COLLATABLE = [
    made_data.ragged, made_data.none, made_data.sometimes_none, made_data.custom,
    made_data.unequal_lists,
]  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", COLLATABLE, ids=lambda make: make.__name__)
def test_batches_of_any_samples(make: Any, workers: int) -> None:
    batches = [epoch_of(kind(Made(make), batch_size=4, num_workers=workers)) for kind in KINDS]
    assert batches[0] == batches[1]
    assert len(batches[1]) == 6


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", NOT_COLLATABLE, ids=lambda make: make.__name__)
def test_what_cannot_be_collated_fails_in_the_same_words(make: Any, workers: int) -> None:
    outcomes = []
    for kind in KINDS:
        batches = iter(kind(Made(make), batch_size=4, num_workers=workers))
        outcomes.append(outcome(lambda batches=batches: [plain(batch) for batch in batches]))
        end_at_once(batches)
    (their_kind, theirs), (our_kind, ours) = outcomes
    assert our_kind is their_kind
    assert without_lines(ours) == without_lines(theirs)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "make", [*NOT_COLLATABLE, made_data.nested, made_data.large], ids=lambda make: make.__name__
)
def test_custom_collate_functions(make: Any, workers: int) -> None:
    arguments = {"batch_size": 4, "num_workers": workers, "collate_fn": tuple}
    theirs, ours = (epoch_of(kind(Made(make), **arguments)) for kind in KINDS)
    assert ours == theirs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "make",
    [made_data.a_number, made_data.nested, made_data.numpy_scalars, made_data.custom,
     made_data.none, made_data.ragged, made_data.a_text, made_data.transposed],
    ids=lambda make: make.__name__,
)  # fmt: skip
def test_samples_without_batching(make: Any, workers: int) -> None:
    arguments = {"batch_size": None, "num_workers": workers}
    theirs, ours = (epoch_of(kind(Made(make, 7), **arguments)) for kind in KINDS)
    assert ours == theirs and len(ours) == 7


def failing(k: int) -> Any:
    if k == 9:
        raise KeyError(f"no sample {k}")
    return k


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_s_error_comes_as_from_torch_and_the_next_batch_after_it(workers: int) -> None:
    seen = []
    for kind in KINDS:
        batches = iter(kind(Made(failing), batch_size=4, num_workers=workers))
        had = [plain(next(batches)) for _ in range(2)]
        error = outcome(lambda batches=batches: next(batches))
        assert error[0] is KeyError and "no sample 9" in error[1]
        if workers:
            had += [plain(batch) for batch in batches]
        end_at_once(batches)
        seen.append((had, without_lines(error[1])))
    assert seen[0] == seen[1]


def doubled(samples: list[int]) -> list[int]:
    return [2 * sample for sample in samples]


class OwnSampler(Sampler[int]):
    """Draws from the global generator as it goes, and gives numbers as tensors and NumPy's."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        for k in range(self.count):
            index = int(torch.randint(23, (1,)))
            yield (index, np.int64(index), torch.tensor(index), -index - 1)[k % 4]

    def __len__(self) -> int:
        return self.count


class EagerSampler(Sampler[list[int]]):
    """Draws everything when it is asked for its iterator, before torch draws the workers' seed."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([torch.randperm(23)[:5].tolist() for _ in range(6)])

    def __len__(self) -> int:
        return 6


def batch_lists() -> Any:
    return [[0, 5], [7], [1, 2, 3, 4, 6], [22, -1]]


SAMPLERS: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": dict,
    "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "weighted": lambda: {
        "sampler": WeightedRandomSampler(
            [k + 1.0 for k in range(23)], 40, generator=torch.Generator().manual_seed(1)
        )
    },
    "weighted, global": lambda: {"sampler": WeightedRandomSampler([1.0] * 23, 30)},
    "subset random": lambda: {"sampler": SubsetRandomSampler(range(3, 15))},
    "with replacement": lambda: {
        "sampler": RandomSampler(range(23), replacement=True, num_samples=50)
    },
    "own": lambda: {"sampler": OwnSampler(30)},
    "list": lambda: {"sampler": [3, 1, 22, 7, 7]},
    "eager": lambda: {"batch_size": 1, "batch_sampler": EagerSampler()},
    "distributed": lambda: {
        "sampler": DistributedSampler(range(23), num_replicas=3, rank=1, seed=5)
    },
    "batch lists": lambda: {"batch_size": 1, "batch_sampler": batch_lists()},
    "batch sampler": lambda: {
        "batch_size": 1,
        "batch_sampler": BatchSampler(SubsetRandomSampler(range(20)), 6, drop_last=True),
    },
    "drop last": lambda: {"drop_last": True},
}


def torch_dataset(name: str) -> Any:
    draw = torch.Generator().manual_seed(0)
    if name == "tensors":
        return TensorDataset(torch.randn(23, 3, 2, generator=draw), torch.arange(23))
    if name == "large tensors":
        return TensorDataset(torch.randn(23, 40_000, generator=draw), torch.arange(23))
    if name == "subset":
        return Subset(Subset(torch_dataset("tensors"), list(range(22, -1, -1))), [*range(22), -1])
    return {
        "made": Made(made_data.a_tuple),
        "together": MadeTogether(made_data.a_dict),
        "list": list(range(23)),
        "concat": ConcatDataset([Made(made_data.a_number, 11), Made(made_data.a_number, 12)]),
    }[name]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", ["tensors", "made"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name: str, dataset: str, workers: int) -> None:
    seen = []
    for kind in KINDS:
        torch.manual_seed(7)
        arguments = {"batch_size": 4, "num_workers": workers, **SAMPLERS[name]()}
        loader = kind(torch_dataset(dataset), **arguments)
        epochs = [epoch_of(loader) for _ in range(2)]
        seen.append((epochs, outcome(lambda loader=loader: len(loader)), torch.get_rng_state()))
    assert seen[0][:2] == seen[1][:2]
    # What is drawn after it is what would have been drawn.
    torch.testing.assert_close(seen[0][2], seen[1][2], rtol=0, atol=0)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "dataset", ["tensors", "large tensors", "subset", "made", "together", "list", "concat"]
)
def test_datasets(dataset: str, workers: int) -> None:
    for arguments in ({"batch_size": 4}, {"batch_size": 5, "drop_last": True}, {"batch_size": 99}):
        theirs, ours = (
            epoch_of(kind(torch_dataset(dataset), num_workers=workers, **arguments))
            for kind in KINDS
        )
        assert ours == theirs
        assert ours or arguments["batch_size"] == 99


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_sampler_as_sampler_without_batching(workers: int) -> None:
    dataset = TensorDataset(torch.randn(23, 3), torch.arange(23))
    theirs, ours = (
        epoch_of(
            kind(
                dataset, batch_size=None, num_workers=workers,
                sampler=BatchSampler(SequentialSampler(dataset), 5, drop_last=False),
            )
        )
        for kind in KINDS
    )  # fmt: skip
    assert ours == theirs and len(ours) == 5


@pytest.mark.parametrize("bad", [[1, 23], [-24, 0]])
def test_numbers_outside_the_dataset(bad: list[int]) -> None:
    for dataset in (torch_dataset("tensors"), torch_dataset("made")):
        theirs, ours = (
            outcome(lambda kind=kind, d=dataset: epoch_of(kind(d, batch_size=2, sampler=bad)))
            for kind in KINDS
        )
        assert theirs[0] is IndexError
        assert ours == theirs


def test_tensors_of_every_dtype_and_layout() -> None:
    for dtype in made_data.DTYPES:
        tensor = (torch.arange(60).view(10, 2, 3) % 7).to(dtype)
        dataset = TensorDataset(tensor, tensor.transpose(1, 2), tensor[:, 0, 0])
        theirs, ours = (epoch_of(kind(dataset, batch_size=4)) for kind in KINDS)
        assert ours == theirs
    odd = torch.randn(10, 3, dtype=torch.complex64).conj()
    dataset = TensorDataset(odd, torch.randn(10, 1).expand(10, 4), torch.randn(10).requires_grad_())
    theirs, ours = (list(kind(dataset, batch_size=4)) for kind in KINDS)
    for one, other in zip(theirs, ours, strict=True):
        for a, b in zip(one, other, strict=True):
            assert torch.equal(a, b) and a.requires_grad == b.requires_grad


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("stream", [Stream, SizedStream])
def test_iterable_datasets(stream: Any, workers: int) -> None:
    seen = []
    for kind in KINDS:
        random.seed(1)
        torch.manual_seed(1)
        loader = kind(stream(), batch_size=4, num_workers=workers)
        epochs = [epoch_of(loader) for _ in range(2)]
        seen.append((epochs, outcome(lambda loader=loader: len(loader))))
    assert seen[0] == seen[1]


def test_a_stream_that_is_longer_than_it_says_is_warned_of_as_torch_warns() -> None:
    class Liar(Stream):
        def __len__(self) -> int:
            return 2

    texts = []
    for kind in KINDS:
        loader = kind(Liar(6), batch_size=2)
        assert len(loader) == 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            list(loader)
        texts.append([re.sub(" at 0x[0-9a-f]+", "", str(entry.message)) for entry in caught])
    assert texts[0] == texts[1] and len(texts[1]) == 1


# Random numbers.


def seed_from_torch(number: int) -> None:
    info = get_worker_info()
    assert info is not None and info.id == number
    np.random.seed(info.seed % 2**32)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("init", [None, seed_from_torch])
@pytest.mark.parametrize(
    "name", ["generator", "weighted", "weighted, global", "subset random", "own", "eager"]
)
def test_a_dataset_draws_what_it_draws_in_torch_s_workers(
    name: str, init: Any, persistent: bool
) -> None:
    seen = []
    for kind in KINDS:
        torch.manual_seed(5)
        arguments: dict[str, Any] = {"batch_size": 4, **SAMPLERS[name]()}
        loader = kind(
            Made(made_data.drawn), num_workers=2, worker_init_fn=init,
            persistent_workers=persistent, **arguments,
        )  # fmt: skip
        epochs = [epoch_of(loader) for _ in range(3)]
        seen.append((epochs, torch.rand(4).tolist()))
        if persistent and kind is Loader:
            loader.close()  # type: ignore[attr-defined]
    assert seen[0] == seen[1]
    assert seen[1][0][0] != seen[1][0][1]


@pytest.mark.parametrize("name", ["generator", "weighted, global", "own", "eager"])
def test_persistent_workers_that_are_not_needed_leave_the_same_random_numbers(name: str) -> None:
    """Rows of tensors are gathered here; torch would have kept workers, and their seed."""
    seen = []
    for kind in KINDS:
        torch.manual_seed(5)
        loader = kind(
            torch_dataset("tensors"),
            num_workers=2,
            persistent_workers=True,
            **{"batch_size": 4, **SAMPLERS[name]()},
        )
        seen.append(([epoch_of(loader) for _ in range(3)], torch.rand(4).tolist()))
    assert seen[0] == seen[1]


def test_a_worker_init_fn_decides_the_seeds_as_in_torch() -> None:
    """Without one our workers seed each batch by itself; with one, torch's seeds are what it
    sees, so that they are what follows.
    """
    seen = []
    for kind in KINDS:
        torch.manual_seed(5)
        loader = kind(
            Made(made_data.drawn), batch_size=4, num_workers=2, worker_init_fn=seed_from_torch
        )
        seen.append(epoch_of(loader))
    assert seen[0] == seen[1]


def test_in_this_process_a_dataset_draws_what_it_draws_with_torch() -> None:
    seen = []
    for kind in KINDS:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        loader = kind(Made(made_data.drawn), batch_size=4)
        seen.append(([epoch_of(loader) for _ in range(2)], random.random(), np.random.rand()))
    assert seen[0] == seen[1]


def test_our_shuffle_leaves_the_global_generators_as_one_draw_does() -> None:
    for workers in (0, 2):
        for dataset in (Made(made_data.a_number), torch_dataset("tensors")):
            torch.manual_seed(5)
            states = random.getstate(), np.random.get_state()[1].tolist()
            list(Loader(dataset, batch_size=4, shuffle=True, num_workers=workers))
            assert states == (random.getstate(), np.random.get_state()[1].tolist())
            after = torch.rand(3)
            torch.manual_seed(5)
            torch.empty((), dtype=torch.int64).random_()
            assert torch.equal(torch.rand(3), after)


# Workers.


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_know_who_they_are(workers: int) -> None:
    seen = []
    for kind in KINDS:
        torch.manual_seed(5)
        seen.append(epoch_of(kind(Made(made_data.who), batch_size=4, num_workers=workers)))
    assert seen[0] == seen[1]


def fail_to_start(number: int) -> None:
    raise RuntimeError(f"worker {number} has no disk")


def test_an_error_of_worker_init_fn() -> None:
    outcomes = []
    for kind in KINDS:
        batches = iter(kind(numbers, batch_size=4, num_workers=1, worker_init_fn=fail_to_start))
        outcomes.append(outcome(lambda batches=batches: next(batches)))
        end_at_once(batches)
    assert outcomes[0][0] is outcomes[1][0] is RuntimeError
    assert without_lines(outcomes[0][1]) == without_lines(outcomes[1][1])


class Counting(Made):
    """Counts how often this copy of it was asked."""

    asked = 0

    def __getitem__(self, index: int) -> int:
        self.asked += 1
        return self.asked


@pytest.mark.parametrize("persistent", [False, True])
def test_persistent_workers_keep_their_dataset(persistent: bool) -> None:
    seen = []
    for kind in KINDS:
        loader = kind(
            Counting(None, 12), batch_size=3, num_workers=2, persistent_workers=persistent
        )
        seen.append([epoch_of(loader) for _ in range(3)])
        if kind is Loader:
            loader.close()  # type: ignore[attr-defined]
    assert seen[0] == seen[1]
    assert (seen[1][0] == seen[1][1]) is not persistent


class Watched(Sampler[int]):
    """Tells how far it was asked."""

    asked = 0

    def __iter__(self) -> Iterator[int]:
        for k in range(200):
            self.asked += 1
            yield k


@pytest.mark.parametrize("prefetch_factor", [1, 2, 5])
def test_no_more_is_made_ahead_than_asked_for(prefetch_factor: int) -> None:
    asked: list[list[int]] = []
    for kind in KINDS:
        sampler = Watched()
        counts = []
        loader = kind(
            Made(made_data.a_number, 200), sampler=sampler, num_workers=2,
            prefetch_factor=prefetch_factor,
        )  # fmt: skip
        for number, _ in enumerate(loader):
            counts.append(sampler.asked - number)
            if number == 20:
                break
        asked.append(counts)
    assert asked[0] == asked[1]


def late_first(k: int) -> Any:
    if k == 0:
        time.sleep(0.7)
    return k


def test_batches_may_overtake_one_another_if_allowed() -> None:
    firsts = {}
    for in_order in (True, False):
        loader = Loader(Made(late_first, 24), batch_size=4, num_workers=2, in_order=in_order)
        batches = [batch.tolist() for batch in loader]
        assert sorted(index for batch in batches for index in batch) == list(range(24))
        firsts[in_order] = batches[0][0]
    assert firsts == {True: 0, False: 4}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start_workers(method: str) -> None:
    arguments = {"batch_size": 4, "num_workers": 1}
    ours = Loader(Made(made_data.nested), multiprocessing_context=method, **arguments)
    assert epoch_of(ours) == epoch_of(DataLoader(Made(made_data.nested), **arguments))


def test_a_context_object() -> None:
    context = multiprocessing.get_context("fork")
    loader = Loader(numbers, batch_size=4, num_workers=1, multiprocessing_context=context)
    assert torch.cat(list(loader)).tolist() == list(range(23))


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is something to pin for")
@pytest.mark.parametrize("dataset", ["tensors", "made"])
@pytest.mark.parametrize("workers", [0, 1])
def test_pinning_without_an_accelerator_warns_as_torch_does(dataset: str, workers: int) -> None:
    texts = []
    for kind in KINDS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = kind(torch_dataset(dataset), num_workers=workers, pin_memory=True)
            assert not caught
            list(loader)
        texts.append([(entry.category, str(entry.message)) for entry in caught])
    assert texts[0] == texts[1] and len(texts[1]) == 1


def test_iterators() -> None:
    loader = Loader(numbers, batch_size=4, num_workers=1)
    batches = iter(loader)
    assert iter(batches) is batches
    assert len(batches) == len(loader) == 6
    assert len(list(batches)) == 6
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(batches)
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iter(loader))


# Copies, and loaders made anew from what a loader shows.


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", ["tensors", "large tensors", "made"])
def test_copies_go_on_by_themselves(dataset: str, workers: int, used: bool) -> None:
    data = torch_dataset(dataset)
    loader = Loader(data, batch_size=4, shuffle=True, num_workers=workers, seed=3, on_error="skip")
    if used:
        for batch in loader:
            del batch
    for clone in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert (clone.seed, clone.on_error, clone.batch_size) == (3, "skip", 4)
        first = epoch_of(clone)
        fresh = Loader(data, batch_size=4, shuffle=True, seed=3)
        fresh.set_epoch(int(used))
        assert first == epoch_of(fresh)
        assert epoch_of(clone) == epoch_of(fresh)
    # The original has not moved.
    assert loader.state_dict()["epoch"] == int(used)
    assert len(epoch_of(loader)) == 6


def test_a_copy_of_a_loader_that_runs_does_not_share_its_workers() -> None:
    loader = Loader(numbers, batch_size=4, num_workers=1, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    clone = copy.deepcopy(loader)
    assert torch.cat(list(batches)).tolist() == list(range(4, 23))
    assert torch.cat(list(clone)).tolist() == list(range(23))
    for one in (loader, clone):
        one.close()


def arguments_as_lightning_reads_them(loader: DataLoader[Any]) -> dict[str, Any]:
    """What is in `vars(loader)` and among the constructor's parameters."""
    found = {k: v for k, v in vars(loader).items() if not k.startswith("_")}
    found["multiprocessing_context"] = loader.multiprocessing_context
    return {k: v for k, v in found.items() if k in inspect.signature(type(loader)).parameters}


def make_anew(loader: Loader[Any], sampler: Any = None) -> Loader[Any]:
    arguments = arguments_as_lightning_reads_them(loader)
    assert OWN.keys() <= arguments.keys()
    batch_sampler = arguments.pop("batch_sampler")
    if type(batch_sampler) is not BatchSampler:
        for name in ("batch_size", "sampler", "drop_last"):
            arguments.pop(name)
        arguments["batch_sampler"] = batch_sampler
    else:
        arguments["sampler"] = sampler or arguments["sampler"]
    return type(loader)(**arguments)


def test_a_loader_made_anew_is_the_same() -> None:
    loader = Loader(
        numbers, batch_size=4, shuffle=True, num_workers="auto", seed=9, on_error="substitute",
        decode="cpu", progress=False,
    )  # fmt: skip
    anew = make_anew(loader)
    for name in (*OWN, "num_workers", "prefetch_factor", "batch_size"):
        assert getattr(anew, name) == getattr(loader, name), name
    assert type(anew.num_workers) is type(anew.prefetch_factor) is AutoCount
    assert type(anew.sampler) is ShuffledSampler
    assert epoch_of(anew) == epoch_of(loader)
    assert anew.state_dict()["order"] == "keyed"


def test_a_loader_made_anew_with_a_distributed_sampler() -> None:
    loader = Loader(numbers, batch_size=4, shuffle=True, seed=9)
    sampler = DistributedSampler(numbers, num_replicas=2, rank=1, shuffle=False)
    anew = make_anew(loader, sampler)
    assert torch.cat(list(anew)).tolist() == [*range(1, 23, 2), 0]


# What is shown.


def shown(loader: Loader[Any]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        print(loader)
    assert repr(loader) == out.getvalue().rstrip("\n")
    return out.getvalue()


def test_print_tells_the_way_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[Loader[Any], str, str]] = [
        (Loader(numbers), "torch", "in this process, as num_workers is 0"),
        (Loader(Stream()), "torch", "an IterableDataset makes its own order"),
        (Loader(numbers, num_workers=1), "worker processes", "Made is read by Python"),
        (Loader(numbers, num_workers=1, collate_fn=list), "worker processes", "your collate_fn"),
        (Loader(numbers, num_workers=1, batch_size=None), "worker processes", "are not batched"),
        (Loader(torch_dataset("tensors")), "row gather", "gathered in one step"),
        (Loader(torch_dataset("subset")), "row gather", "gathered in one step"),
    ]
    for loader, path, why in cases:
        text = shown(loader)
        assert f"path: {path}" in text and why in text, text
    assert "workers: 1 (as given), 2 ahead" in shown(Loader(numbers, num_workers=1))
    assert "measured while training" in shown(Loader(numbers, num_workers="auto"))
    assert "23 samples, batch_size=4" in shown(Loader(numbers, batch_size=4))
    assert "unknown length" in shown(Loader(Stream()))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert "rank 1 of 3: takes its share of every step" in shown(Loader(numbers))
    assert "rank 1 of 3: takes what its sampler gives" in shown(Loader(numbers, sampler=[1]))


# Packed datasets.


class EveryField(Made):
    """All kinds of fields that collate."""

    def __init__(self) -> None:
        super().__init__(None, 23)

    def __getitem__(self, index: int) -> dict[str, Any]:
        draw = np.random.default_rng(index)
        return {
            "whole": index - 2,
            "real": index / 3,
            "text": "größer " * (index % 3),
            "raw": bytes(range(index)),
            "fixed": draw.normal(size=(3, 2)).astype(np.float32),
            "half": draw.normal(size=4).astype(np.float16),
            "wide": draw.normal(size=(2, 2)) + 1j,
            "flags": draw.integers(0, 2, 5).astype(bool),
            "none": np.empty((0, 3), np.int16),
            "one": np.array(index, np.int32),
        }


@pytest.fixture(scope="module")
def every_field(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fields") / "every.slip"
    pack_dataset(EveryField(), path, shard_bytes=4096)
    return path


@pytest.mark.parametrize("as_tuple", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_kind_of_field(every_field: Path, workers: int, as_tuple: bool) -> None:
    dataset = open_dataset(every_field, as_tuple=as_tuple)
    views: list[Any] = [dataset, dataset[3:20:2], Subset(dataset, [5, 1, 1, 22])]
    for view in views:
        for arguments in (
            {"batch_size": 4},
            {"batch_size": 3, "sampler": [0, 3, 2, 2, 1]},
            {"batch_size": 2, "drop_last": True},
        ):
            theirs = DataLoader(view, num_workers=workers, **arguments)
            ours = Loader(view, num_workers=workers, **arguments)
            assert "native engine" in repr(ours)
            assert epoch_of(ours) == epoch_of(theirs)


@pytest.mark.parametrize("names", [["whole"], ["text", "fixed"], ["one", "none", "raw"]])
def test_chosen_fields(every_field: Path, names: list[str]) -> None:
    dataset = open_dataset(every_field, fields=names)
    theirs, ours = (epoch_of(kind(dataset, batch_size=4)) for kind in KINDS)
    assert ours == theirs


def test_other_ways_through_a_packed_dataset(every_field: Path) -> None:
    dataset = open_dataset(every_field)
    for arguments in (
        {"collate_fn": list, "batch_size": 4},
        {"collate_fn": list, "batch_size": 4, "num_workers": 2},
        {"batch_size": None},
        {"batch_size": None, "num_workers": 2},
        {"batch_sampler": [[1, 2], [22]]},
    ):
        theirs, ours = (epoch_of(kind(dataset, **arguments)) for kind in KINDS)
        assert ours == theirs


def test_tokens(tmp_path: Path) -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    np.save(tmp_path / "tokens.npy", tokens)
    pack_source(open_source(tmp_path / "tokens.npy", window=32), tmp_path / "t.slip")
    dataset = open_dataset(tmp_path / "t.slip")
    theirs, ours = (epoch_of(kind(dataset, batch_size=4)) for kind in KINDS)
    assert ours == theirs and len(ours) > 5


@pytest.mark.parametrize("as_tuple", [False, True])
def test_json_stays_what_it_is(tmp_path: Path, as_tuple: bool) -> None:
    trees = [
        {"tree": {"a": [k, k / 2], "b": {"name": f"s{k}"}}, "flat": [k, f"t{k}"], "k": k}
        for k in range(9)
    ]
    pack_dataset(trees, tmp_path / "json.slip")
    dataset = open_dataset(tmp_path / "json.slip", as_tuple=as_tuple)
    assert [field.kind for field in dataset.fields] == ["json", "json", "int"]
    batch = next(iter(Loader(dataset, 4)))
    tree, flat, numbers = batch if as_tuple else batch.values()
    assert list(tree) == [trees[k]["tree"] for k in range(4)]
    assert list(flat) == [trees[k]["flat"] for k in range(4)]
    assert numbers.tolist() == [0, 1, 2, 3]


def test_what_differs_between_samples_comes_as_a_list(tmp_path: Path, every_kind: Any) -> None:
    """torch cannot batch these; a list of what the samples hold is what a loop can use."""
    pack_dataset(every_kind, tmp_path / "kinds.slip", fields=every_kind.KINDS)
    dataset = open_dataset(tmp_path / "kinds.slip")
    with pytest.raises((RuntimeError, TypeError)):
        list(DataLoader(dataset, batch_size=5))
    (batch,) = Loader(dataset, batch_size=5)
    samples = [dataset[k] for k in range(5)]
    assert [plain(array) for array in batch["ragged"]] == [
        plain(torch.from_numpy(sample["ragged"])) for sample in samples
    ]
    assert batch["tree"] == [sample["tree"] for sample in samples]
    assert batch["raw"] == [sample["raw"] for sample in samples]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of one size, so that torch can batch them, too."""
    folder = tmp_path_factory.mktemp("pictures") / "flat"
    for number in range(10):
        path = folder / "ab"[number % 2] / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(64, 48, number))
    return folder


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("as_tuple", [False, True])
def test_pictures_of_one_size(pictures: Path, tmp_path: Path, as_tuple: bool, packed: bool) -> None:
    path = pictures
    if packed:
        path = tmp_path / "packed.slip"
        pack_source(open_source(pictures), path)
    dataset = open_dataset(path, as_tuple=as_tuple)
    theirs, ours = (epoch_of(kind(dataset, batch_size=4)) for kind in KINDS)
    assert ours == theirs and len(ours) == 3


def test_pictures_of_different_sizes_say_what_to_do(tmp_path: Path) -> None:
    dataset = open_dataset(write_flat(tmp_path / "flat", 4))
    with pytest.raises(RuntimeError):
        list(DataLoader(dataset, batch_size=4))
    with pytest.raises(UsageError, match=r"differ in size: sample 0 is 100 x 80, sample 1 is 101"):
        list(Loader(dataset, batch_size=4))
    assert [b["image"].shape[2] for b in Loader(dataset, batch_size=1)] == [100, 101, 102, 103]


def test_a_transform_is_the_dataset_s_too(pictures: Path) -> None:
    """A framework that keeps the dataset of a loader and makes torch's own gets the same."""
    transform = standins.v1.Compose(
        [standins.v1.RandomResizedCrop(24), standins.v1.RandomHorizontalFlip(),
         standins.v1.ToTensor()]
    )  # fmt: skip
    loader = Loader(open_dataset(pictures), batch_size=4, transform=transform, seed=2)
    assert "native engine" in repr(loader)
    assert epoch_of(loader) == epoch_of(DataLoader(loader.dataset, batch_size=4))
    loader.dataset.set_epoch(1)
    assert epoch_of(loader) == epoch_of(DataLoader(loader.dataset, batch_size=4))
    anew = make_anew(loader)
    assert anew.dataset.source is loader.dataset.source
    anew.set_epoch(0)
    loader.set_epoch(0)
    assert epoch_of(anew) == epoch_of(loader)
    clone = copy.deepcopy(loader)
    for one in (loader, clone):
        one.set_epoch(0)
    assert epoch_of(clone) == epoch_of(loader)


def test_two_iterations_at_once_keep_their_epochs(pictures: Path) -> None:
    """Of a pipeline that ends in Python, where the dataset is told its epoch."""
    v1 = standins.v1
    make = functools.partial(Loader, open_dataset(pictures), batch_size=4, shuffle=True)
    native = make(transform=[v1.RandomCrop(24), v1.ToTensor()])
    expected = [epoch_of(native), epoch_of(native)]
    loader = make(transform=[v1.RandomCrop(24), v1.ColorJitter(), v1.ToTensor()])
    assert "native engine" in repr(native) and "as given: ColorJitter" in repr(loader)
    pairs = [(plain(one), plain(other)) for one, other in zip(loader, loader, strict=True)]
    assert [list(part) for part in zip(*pairs, strict=True)] == expected


class BeginsAnew:
    """A batch sampler that is its own iterator, and starts over when asked for one: Lightning's."""

    def __init__(self, batches: list[list[int]]) -> None:
        self._batches = batches
        self.begun = 0

    def __iter__(self) -> "BeginsAnew":
        self.begun += 1
        self._left = iter(self._batches)
        return self

    def __next__(self) -> list[int]:
        return next(self._left)

    def __len__(self) -> int:
        return len(self._batches)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("own_generator", [False, True])
def test_a_batch_sampler_that_is_its_own_iterator(workers: int, own_generator: bool) -> None:
    generator = torch.Generator() if own_generator else None
    seen = {}
    for kind in (DataLoader, Loader):
        sampler: Any = BeginsAnew([[0, 1], [2, 3], [4]])
        loader = kind(
            TensorDataset(torch.arange(5)), batch_sampler=sampler, num_workers=workers,
            generator=generator,
        )  # fmt: skip
        seen[kind] = [batch[0].tolist() for batch in loader], sampler.begun
    assert seen[Loader] == seen[DataLoader]
    assert seen[Loader][0] == [[0, 1], [2, 3], [4]]


def test_a_framework_that_goes_on_after_an_epochs_last_batch() -> None:
    """It saves when the last batch was had, and tells its sampler of the next epoch."""
    dataset = TensorDataset(torch.arange(8))

    def make() -> tuple[Loader[Any], DistributedSampler[Any]]:
        sampler = DistributedSampler(dataset, num_replicas=1, rank=0, seed=3)
        return Loader(dataset, 2, sampler=sampler), sampler

    def epoch(loader: Loader[Any], sampler: Any, number: int) -> list[list[int]]:
        sampler.set_epoch(number)
        return [batch[0].tolist() for batch in loader]

    loader, sampler = make()
    expected = [epoch(loader, sampler, number) for number in range(3)]
    loader, sampler = make()
    batches = iter(loader)
    assert [next(batches)[0].tolist() for _ in range(4)] == expected[0]
    state = loader.state_dict()
    loader, sampler = make()
    loader.load_state_dict(state)
    assert [epoch(loader, sampler, number) for number in (1, 2)] == expected[1:]
    loader, sampler = make()
    loader.load_state_dict(state)
    assert epoch(loader, sampler, 0) == [], "of this epoch nothing is left"
    assert epoch(loader, sampler, 1) == expected[1]


def test_a_loader_without_shuffle_hears_of_epochs_too() -> None:
    loader = Loader(TensorDataset(torch.arange(4)), 2)
    assert isinstance(loader.sampler, SequentialSampler)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    other = Loader(TensorDataset(torch.arange(4)), 2)
    other.load_state_dict(loader.state_dict())
    other.sampler.set_epoch(1)  # type: ignore[attr-defined]
    assert [batch[0].tolist() for batch in other] == [[0, 1], [2, 3]]
    assert other.state_dict()["epoch"] == 2
