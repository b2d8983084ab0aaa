"""A thread is found where it is, and nobody else is disturbed."""

import gc
import string
import sys
import textwrap
import threading
import time
import weakref

from slipstream._native import frames_of
from slipstream.doctor.record.sampler import Sampler


def test_frames_of_a_thread_the_innermost_first() -> None:
    ready, over = threading.Event(), threading.Event()

    def outer() -> None:
        inner()

    def inner() -> None:
        ready.set()
        over.wait()

    thread = threading.Thread(target=outer)
    thread.start()
    assert ready.wait(10)
    try:
        names = [frame.f_code.co_name for frame, _ in frames_of(thread.ident or 0)]
    finally:
        over.set()
        thread.join()
    assert names.index("inner") < names.index("outer")
    assert frames_of(thread.ident or 0) == []


def test_collections_stay_on_or_off() -> None:
    own = threading.get_ident()
    assert gc.isenabled()
    frames_of(own)
    assert gc.isenabled()
    gc.disable()
    try:
        frames_of(own)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_thread_with_short_calls_and_much_garbage_lives() -> None:
    """Frames end, and finalizers give way, while they are looked at."""
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sampler = Sampler(0.0, lambda: "")

    class Ring:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            sum(range(50))

    def deep(depth: int) -> object:
        return Ring() if depth == 0 else deep(depth - 1)

    gc.set_threshold(50)
    sampler.start()
    try:
        for number in range(3000):
            deep(number % 30)
    finally:
        sampler.stop()
        gc.set_threshold(*thresholds)
    assert sampler.lines()
    assert sys.getswitchinterval() == before


def test_line_and_function_are_of_the_same_moment() -> None:
    """Calls are shorter than what it takes to look: none may be found at the line of another."""
    sampler = Sampler(0.0, lambda: "")
    first = sys._getframe().f_lineno + 5
    sampler.start()
    try:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            textwrap.dedent("  a\n  b")
            string.capwords("one two")
    finally:
        sampler.stop()
    found = {
        (line.leaf.partition(".")[0], int(line.where.rpartition(":")[2]))
        for line in sampler.lines()
        if line.leaf.startswith(("textwrap.", "string."))
    }
    assert found == {("textwrap", first), ("string", first + 1)}


def test_what_a_function_held_goes_with_it() -> None:
    """A batch that lived until the next look would cost the script its memory, and time."""

    class Batch:
        pass

    def step() -> weakref.ref[Batch]:
        batch = Batch()
        end = time.monotonic() + 0.25
        while time.monotonic() < end:
            pass
        return weakref.ref(batch)

    def is_held(batch: weakref.ref[Batch]) -> bool:
        end = time.monotonic() + 0.05  # it may be looking just now
        while batch() is not None and time.monotonic() < end:
            time.sleep(0.001)
        return batch() is not None

    sampler = Sampler(0.2, lambda: "")
    sampler.start()
    try:
        held = [is_held(step()) for _ in range(8)]
    finally:
        sampler.stop()
    assert not any(held)
    assert sampler.lines()
