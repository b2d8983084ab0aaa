"""What slow_train.py printed: the speed and the loss of every epoch."""

import re
from dataclasses import dataclass

from slipstream.errors import InternalError

_EPOCH = re.compile(r"^epoch \d+: ([\d.]+) pictures/s, loss (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Trained:
    """One run of it, whoever made it fast."""

    speeds: tuple[float, ...]
    losses: tuple[str, ...]

    @property
    def pictures_per_s(self) -> float:
        """Of all epochs but the first, in which things start.

        >>> Trained((1.0, 100.0, 50.0), ()).pictures_per_s
        66.66666666666667
        """
        speeds = self.speeds[1:] or self.speeds
        return len(speeds) / sum(1 / speed for speed in speeds)


def read_trained(said: str) -> Trained:
    """From all that a run printed.

    >>> read_trained("epoch 0: 20.0 pictures/s, loss 1.25")
    Trained(speeds=(20.0,), losses=('1.25',))
    """
    epochs = _EPOCH.findall(said)
    if not epochs:
        raise InternalError(f"The script printed no epoch. It said:\n{said.strip()[-1500:]}")
    return Trained(tuple(float(speed) for speed, _ in epochs), tuple(loss for _, loss in epochs))
