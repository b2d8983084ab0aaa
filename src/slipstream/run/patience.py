"""How long trials may go on: a script of some minutes is not worth an hour of them."""

import time


class Patience:
    """So many seconds, or as long as so many of the longest trial so far take, if that is more:
    scripts that start slowly have slow trials.
    """

    def __init__(self, seconds: float, trials: int) -> None:
        self._seconds, self._trials = seconds, trials
        self._began = time.monotonic()
        self._longest = 0.0

    def note(self, seconds: float) -> None:
        """What a trial took."""
        self._longest = max(self._longest, seconds)

    @property
    def is_over(self) -> bool:
        """Whether what is left had better not be tried."""
        most = max(self._seconds, self._trials * self._longest)
        return time.monotonic() - self._began > most
