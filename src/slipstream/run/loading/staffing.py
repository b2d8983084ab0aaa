"""How many processes make batches ahead: as many as the loop can use, of those there is room for.

What a batch takes in them is known when they have made some. Several of them may give the loop a
few batches at once and have it wait for the next: what counts is what it waits over a round.
"""

import os

import torch

from slipstream.cpu import usable_cores
from slipstream.run.loading.depth import MEMORY_SHARE, available_bytes
from slipstream.run.loading.knowledge import Knowledge

DEPTH = 2  # batches ahead, for each process
# The loop's, and two to make batches; a loop that leaves its own idle does not count.
CORES_TO_SCOUT, CORES_TO_SCOUT_BESIDE_IDLE = 3, 2
_MOSTLY = 0.7  # of a core: what the loop uses while all of them make batches
_STARVED_SHARE = 0.1  # of what the loop does with a batch
_LEAST_BATCHES = 3
_MOST_ROUNDS = 3


class Staffing:
    """Of one iteration."""

    def __init__(self, known: Knowledge) -> None:
        self._known = known
        self._ranks = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        self._cores = usable_cores() // self._ranks
        self._is_enough = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._waited = 0.0
        self._batches = 0

    @property
    def wanted(self) -> int:
        """Makers. Where samples draw, the process that makes none has a core as well, if the loop
        uses its own.
        """
        cores = self._cores
        if self._known.draws and not self._leaves_its_core:
            cores -= 1
        return max(1, min(cores, self._known.makers))

    @property
    def may_scout(self) -> bool:
        """Whether one process may draw for the others."""
        least = CORES_TO_SCOUT_BESIDE_IDLE if self._leaves_its_core else CORES_TO_SCOUT
        return self._known.scouts and self._cores >= least

    @property
    def _leaves_its_core(self) -> bool:
        """Whether the loop waits for a device, or for batches though all cores make them."""
        return _is_device() or self._cores * self._known.loop_share < _MOSTLY

    def missing(self, makers: int, waited: float, nbytes: int) -> int:
        """The loop has waited so long for a batch of so many makers: how many more to start."""
        self._waited += waited
        self._batches += 1
        if self._is_enough or self._batches < max(_LEAST_BATCHES, makers):
            return 0
        is_starved = self._waited > _STARVED_SHARE * self._known.loop_s * self._batches
        if not is_starved and self._batches < _MOST_ROUNDS * makers:
            return 0
        self._begin_anew()
        missing = self.wanted - makers
        if not is_starved or missing <= 0:
            return 0
        return max(0, min(makers, missing, self._most(nbytes) - makers))

    def has_enough(self) -> None:
        """No more can be started."""
        self._is_enough = True

    def _most(self, nbytes: int) -> int:
        """Those whose batches there is memory for: under way, and one each that the loop has."""
        budget = MEMORY_SHARE * available_bytes() / self._ranks
        return int(budget / ((DEPTH + 1) * max(1, nbytes)))


def _is_device() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
