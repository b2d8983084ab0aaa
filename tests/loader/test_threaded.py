"""Batches made by threads come in order, errors in their place, and the threads end."""

import contextlib
import gc
import os
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from slipstream.errors import UsageError
from slipstream.loader.made import Made
from slipstream.loader.plan import Task
from slipstream.loader.threaded import ThreadedBatches, one_by_one

pytestmark = pytest.mark.timeout(30)


def tasks(count: int) -> Iterator[Task]:
    return (Task(k, [k], k + 1) for k in range(count))


def make(task: Task) -> Made:
    time.sleep(0.001 * (task.key % 3))
    return Made(task.key, 1)


def threads_alive() -> int:
    return sum(thread.name.startswith("slipstream-batches") for thread in threading.enumerate())


@pytest.mark.parametrize(("threads", "depth"), [(1, 1), (2, 2), (3, 8)])
def test_order(threads: int, depth: int) -> None:
    batches = ThreadedBatches(one_by_one(make), tasks(50), threads=threads, depth=depth)
    assert [made.batch for _, made in batches] == list(range(50))
    with pytest.raises(StopIteration):
        next(batches)
    batches.close()
    assert threads_alive() == 0


def test_no_more_than_the_depth_is_made_ahead() -> None:
    made = []

    def count(task: Task) -> Made:
        made.append(task.key)
        return Made(task.key, 1)

    batches = ThreadedBatches(one_by_one(count), tasks(50), threads=2, depth=3)
    for delivered in range(1, 5):
        next(batches)
        time.sleep(0.1)
        assert len(made) <= delivered + 3
    batches.close()


@pytest.mark.parametrize(("samples", "depth"), [(2, 4), (3, 3), (4, 2), (100, 8)])
def test_groups(samples: int, depth: int) -> None:
    seen: list[list[int]] = []

    def make_group(group: Sequence[Task]) -> list[Made | BaseException]:
        seen.append([task.key for task in group])
        return [ValueError("four") if task.key == 4 else Made(task.key, 1) for task in group]

    batches = ThreadedBatches(make_group, tasks(11), threads=2, depth=depth, group=lambda: samples)
    assert [next(batches)[1].batch for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="four"):
        next(batches)
    assert [made.batch for _, made in batches] == list(range(5, 11))
    sizes = [len(keys) for keys in sorted(seen)]
    assert sizes[0] == 1
    assert all(size == samples for size in sizes[1:-1])
    assert sum(sizes) == 11


def test_groups_are_counted_in_samples() -> None:
    sizes = [3, 5, 1, 8, 20, 2, 2, 2, 0, 4]
    seen: list[list[int]] = []

    def make_group(group: Sequence[Task]) -> list[Made | BaseException]:
        seen.append([len(task.indices) for task in group])
        return [Made(task.key, 1) for task in group]

    made = (Task(k, [0] * size, k + 1) for k, size in enumerate(sizes))
    batches = ThreadedBatches(make_group, made, threads=1, depth=1, group=lambda: 8)
    assert [batch.batch for _, batch in batches] == list(range(len(sizes)))
    assert [size for group in seen for size in group] == sizes
    assert all(sum(group[:-1]) <= 8 for group in seen)
    assert max(len(group) for group in seen) > 2


def test_a_sampler_that_is_ahead_is_not_much_ahead() -> None:
    drawn = []

    def watched() -> Iterator[Task]:
        for task in tasks(500):
            drawn.append(task.key)
            yield task

    batches = ThreadedBatches(one_by_one(make), watched(), threads=2, depth=3, group=lambda: 10)
    for delivered in range(1, 60):
        next(batches)
        assert len(drawn) <= delivered + 3 * 10
    batches.close()


def test_errors_come_in_their_place_and_the_rest_goes_on() -> None:
    def fail_at_two(task: Task) -> Made:
        if task.key == 2:
            raise ValueError("two")
        return make(task)

    batches = ThreadedBatches(one_by_one(fail_at_two), tasks(5), threads=2, depth=4)
    assert [next(batches)[1].batch for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(batches)
    assert [made.batch for _, made in batches] == [3, 4]


def test_an_error_of_the_tasks_comes_after_those_before_it() -> None:
    def failing() -> Iterator[Task]:
        yield from tasks(3)
        raise ValueError("no more")

    batches = ThreadedBatches(one_by_one(make), failing(), threads=2, depth=8)
    assert [next(batches)[1].batch for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="no more"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)


@pytest.mark.parametrize("count", [5000, 3])
def test_dropping_it_ends_the_threads_without_the_collector(count: int) -> None:
    gc.disable()
    try:
        batches = ThreadedBatches(one_by_one(make), tasks(count), threads=2, depth=4)
        next(batches)
        del batches
        assert threads_alive() == 0
    finally:
        gc.enable()


def test_an_error_that_was_caught_keeps_nothing() -> None:
    def fail(task: Task) -> Made:
        raise ValueError("always")

    gc.disable()
    try:
        batches = ThreadedBatches(one_by_one(fail), tasks(5), threads=2, depth=4)
        with contextlib.suppress(ValueError):
            next(batches)
        del batches
        assert threads_alive() == 0
    finally:
        gc.enable()


def test_the_end_comes_in_one_of_the_threads_itself() -> None:
    """The collector may run anywhere: an end that waited for its own thread would wait long."""
    box: list[ThreadedBatches] = []
    is_packed = threading.Event()

    def let_go(task: Task) -> Made:
        if task.key == 3:
            is_packed.wait(10)
            box.clear()
        return make(task)

    box.append(ThreadedBatches(one_by_one(let_go), tasks(50), threads=2, depth=8))
    next(box[0])
    is_packed.set()
    deadline = time.monotonic() + 5
    while threads_alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not box


def test_a_forked_child_is_refused() -> None:
    batches = ThreadedBatches(one_by_one(make), tasks(50), threads=2, depth=4)
    next(batches)
    child = os.fork()
    if not child:
        code = 1
        try:
            next(batches)
        except UsageError:
            code = 0
        batches.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(batches)) == 49
