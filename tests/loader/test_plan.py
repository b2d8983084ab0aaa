"""Which sample comes in which batch of which rank, for all sizes: counted, not sampled."""

import dataclasses
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.loader.plan import Order, Plan

# Always the same examples, and no deadline: a slow machine is not a wrong plan.
fixed = settings(derandomize=True, deadline=None, max_examples=60, database=None)
samples = st.integers(0, 400)
batch_sizes = st.integers(1, 17)
worlds = st.integers(1, 9)


def ranks_of(plan: Plan) -> list[Plan]:
    return [dataclasses.replace(plan, rank=rank) for rank in range(plan.world)]


def batches_of(plan: Plan, epoch: int = 0, position: int = 0) -> list[list[list[int]]]:
    """The batches of each rank."""
    return [[task.indices for task in own.tasks(epoch, position)] for own in ranks_of(plan)]


def positions_of(plan: Plan, position: int = 0) -> Iterator[int]:
    """All positions that an epoch passes through, its beginning and its end among them."""
    yield position
    for task in plan.tasks(0, position):
        yield task.after


def counted(batches: list[list[list[int]]]) -> Counter[int]:
    return Counter(index for own in batches for batch in own for index in batch)


@fixed
@given(samples, batch_sizes, worlds, st.booleans(), st.booleans())
def test_every_rank_has_the_promised_number_of_batches(
    count: int, batch_size: int, world: int, drop_last: bool, shuffle: bool
) -> None:
    plan = Plan(count, batch_size, shuffle=shuffle, drop_last=drop_last, world=world)
    batches = batches_of(plan)
    assert [len(own) for own in batches] == [len(plan)] * world
    sizes = {len(batch) for own in batches for batch in own}
    assert sizes <= ({batch_size} if drop_last else set(range(1, batch_size + 1)))
    for step in zip(*batches, strict=True):
        # Nobody waits for a rank that has more to do.
        assert max(map(len, step)) - min(map(len, step)) <= 1


@fixed
@given(samples, batch_sizes, worlds, st.booleans())
def test_ranks_together_have_every_sample_once(
    count: int, batch_size: int, world: int, shuffle: bool
) -> None:
    plan = Plan(count, batch_size, shuffle=shuffle, seed=3, world=world)
    had = counted(batches_of(plan, epoch=2))
    assert set(had) == set(range(count))
    repeated = had.total() - count
    if count >= world and batch_size > 1:
        assert repeated == 0
    # Elsewhere only what fills up the last step: so many that every rank has one sample.
    assert repeated < world


@fixed
@given(samples, batch_sizes, worlds, st.booleans())
def test_drop_last_leaves_out_less_than_a_step(
    count: int, batch_size: int, world: int, shuffle: bool
) -> None:
    plan = Plan(count, batch_size, shuffle=shuffle, drop_last=True, world=world)
    had = counted(batches_of(plan))
    assert all(times == 1 for times in had.values())
    assert count - had.total() == count % (batch_size * world)


@fixed
@given(
    st.integers(1, 300), batch_sizes, worlds,
    st.lists(st.tuples(st.integers(0, 30), batch_sizes, worlds), max_size=4), st.booleans(),
)  # fmt: skip
def test_any_number_of_ranks_goes_on_from_any_position(
    count: int, batch_size: int, world: int, later: list[tuple[int, int, int]], shuffle: bool
) -> None:
    """Change the number of ranks and the batch size again and again; then count."""
    had: Counter[int] = Counter()
    position = 0
    repeats_allowed = 0
    for steps, size, ranks in [*later, (count, batch_size, world)]:
        plan = Plan(count, size, shuffle=shuffle, seed=9, world=ranks)
        for _ in range(steps):
            after = plan.advance(position)
            if after == position:
                break
            repeats_allowed += max(0, ranks - (after - position))
            order = plan.order(4)
            for own in ranks_of(plan):
                had.update(order.at(np.asarray(own.share(position, after))).tolist())
            position = after
    assert position == count
    assert set(had) == set(range(count))
    assert had.total() - count == repeats_allowed


@fixed
@given(st.integers(1, 60), batch_sizes, worlds, batch_sizes, worlds)
def test_rest_of_an_epoch_with_other_ranks_is_exactly_what_was_not_had(
    count: int, batch_size: int, world: int, other_size: int, other_world: int
) -> None:
    before = Plan(count, batch_size, shuffle=True, seed=1, world=world)
    after = Plan(count, other_size, shuffle=True, seed=1, world=other_world)
    order = before.order(0).at(np.arange(count)).tolist()
    for position in positions_of(before):
        rest = counted(batches_of(after, 0, position))
        assert set(rest) == set(order[position:])
        if other_size > 1 and count - position >= other_world:
            assert rest.total() == count - position


@fixed
@given(st.integers(1, 300), batch_sizes, worlds)
def test_a_repeated_sample_needs_batches_of_one_or_too_few_samples(
    count: int, batch_size: int, world: int
) -> None:
    had = counted(batches_of(Plan(count, batch_size, world=world)))
    if any(times > 1 for times in had.values()):
        assert batch_size == 1 or count < world


@fixed
@given(st.integers(1, 300), batch_sizes, worlds, st.booleans())
def test_keys_number_batches_once(count: int, batch_size: int, world: int, drop_last: bool) -> None:
    """What a batch's random numbers are drawn from: no two of an epoch have the same."""
    plan = Plan(count, batch_size, drop_last=drop_last, world=world)
    keys = Counter(task.key for own in ranks_of(plan) for task in own.tasks(0))
    assert all(times == 1 for times in keys.values()) or batch_size == 1 or count < world


@fixed
@given(
    st.integers(1, 300), batch_sizes, worlds, st.booleans(), st.integers(0, 300), st.integers(0, 8)
)
def test_asking_changes_nothing(
    count: int, batch_size: int, world: int, drop_last: bool, position: int, rank: int
) -> None:
    plan = Plan(count, batch_size, drop_last=drop_last, world=world, rank=rank % world)
    position = min(position, count)
    after = plan.advance(position)
    assert position <= after <= min(count, position + world * batch_size)
    assert plan.advance(position) == after
    # The same on every rank, and without having been through what comes before.
    assert {own.advance(position) for own in ranks_of(plan)} == {after}
    if after > position:
        share = plan.share(position, after)
        assert plan.share(position, after) == share
        assert position <= share.start < share.stop <= after
    first = [(t.key, t.indices, t.after) for t in plan.tasks(3, position)]
    assert [(t.key, t.indices, t.after) for t in plan.tasks(3, position)] == first
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.rank = 5  # type: ignore[misc]


@fixed
@given(st.integers(0, 2000), st.integers(0, 2**64 - 1), st.integers(0, 1000))
def test_an_order_has_every_sample_once(count: int, seed: int, epoch: int) -> None:
    places = np.arange(count)
    assert sorted(Order(count, seed, epoch).at(places).tolist()) == list(range(count))
    assert Order(count).at(places).tolist() == list(range(count))


def test_a_tail_is_shared_evenly() -> None:
    """17 samples on two ranks: not 8 + 8 and one for a single rank, but 9 and 8 on both."""
    batches = batches_of(Plan(17, 8, world=2))
    assert [[len(batch) for batch in own] for own in batches] == [[5, 4], [4, 4]]
    assert counted(batches).total() == 17


def test_fewer_samples_than_ranks_are_repeated_evenly() -> None:
    assert batches_of(Plan(2, 4, world=5)) == [[[0]], [[1]], [[0]], [[1]], [[0]]]
    assert batches_of(Plan(5, 1, world=2)) == [[[0], [2], [4]], [[1], [3], [4]]]
    assert batches_of(Plan(2, 4, world=5, drop_last=True)) == [[], [], [], [], []]


def test_nothing_to_do() -> None:
    assert len(Plan(0, 4, world=3)) == 0
    assert batches_of(Plan(0, 4, shuffle=True, world=3)) == [[], [], []]
