"""`kept-memory`: memory that a step frees stays with the process for the next step.

torch's allocator gives pages back to the system when they are free for some milliseconds, which in
a training loop is always, and the next step pays for every page once more. The allocator reads its
settings when torch is loaded: what `slipstream.run.memory` gives must be in place before that, so
this fix is one of the process and not of a function. The process keeps the most memory that it
ever needed.
"""

import itertools
import os
import statistics
from functools import cache
from pathlib import Path

import psutil
import torch

from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.memory import NEVER, VARIABLE, is_chosen
from slipstream.run.trace import Trace

NAME = "kept-memory"
_MOST = 0.5  # of the machine's memory
_PAGE_S = 2e-4  # what a new page takes at most: one of 2 MiB, cleared
_LEAST_SHARE = 0.01  # of a step
_LEAST_PAGES = 4  # in a step: a trial itself takes some
_FEWEST_STEPS = 6


def applies(situation: Situation) -> tuple[bool, str]:
    """Where the processor does the work, and has memory to spare."""
    if situation.on_device:
        return False, "the work is done by a device"
    if not has_own_allocator():
        return False, "this torch has no allocator that gives pages back"
    if is_chosen():
        return False, f"{VARIABLE} is set already"
    most = max((resident for _, resident, *_ in situation.capture.memory), default=0)
    if most > _MOST * psutil.virtual_memory().total:
        return False, "the script takes most of the memory"
    return True, "what a step frees is used again by the next"


def takes_pages(trace: Trace) -> bool:
    """Whether steps of the script as it is may spend time that counts on new pages.

    >>> takes_pages(Trace(ends=[0.0, 0.1, 0.2, 0.3, 0.4, 0.5], pages=[90, 95, 95, 95, 95, 96]))
    False
    """
    if len(trace.pages) != len(trace.ends) or len(trace.ends) < _FEWEST_STEPS:
        return True
    first = len(trace.ends) // 3
    pages = statistics.median(
        after - before for before, after in itertools.pairwise(trace.pages[first:])
    )
    step_s = statistics.median(trace.step_seconds()[first:])
    return pages >= _LEAST_PAGES and pages * _PAGE_S >= _LEAST_SHARE * step_s


def apply(situation: Situation) -> Undo:
    """Nothing is left to do: the process was started so. Raises where it was not."""
    if os.environ.get(VARIABLE) != NEVER:
        raise RuntimeError(f"{VARIABLE} was not set when torch was loaded")
    return lambda: None


@cache
def has_own_allocator() -> bool:
    """Whether torch was built with mimalloc, which the setting is for."""
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    return library.is_file() and b"mimalloc" in library.read_bytes()


FIX = Fix(NAME, "E", "memory that a step frees stays for the next", (), applies, apply)
