"""A finished batch and what making it took."""

from dataclasses import dataclass, field
from typing import Any

from slipstream.loader.bad_samples import BadSample


@dataclass(slots=True)
class Made:
    """A batch; None where every sample of it was bad. Times are of whoever made it, in seconds."""

    batch: Any
    samples: int
    nbytes: int = 0
    fetch_s: float = 0.0
    collate_s: float = 0.0
    cpu_s: float = 0.0
    bad: list[BadSample] = field(default_factory=list)
