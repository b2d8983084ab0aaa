"""A thread is found where it is, and nobody else is disturbed."""

import gc
import sys
import threading

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
        names = [frame.f_code.co_name for frame in frames_of(thread.ident or 0)]
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
