"""The process that tries a runtime first: `python -m slipstream.infer.elsewhere.child SPEC`.

SPEC is a JSON file; arrays lie beside it. What a runtime gives is left in `outputs.npz`, what it
raises in `error.txt`. Should it crash or hang, it is this process alone.
"""

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from slipstream.infer.elsewhere.lists import load_lists, save_lists
from slipstream.infer.elsewhere.runtimes import Array, Opened, Runtime
from slipstream.orphan import end_with_parent

_WARM_UP = 4
_ROUNDS = 3
_CALLS_A_ROUND = 4
_MOST_S = 2.0  # for all rounds
_LEAK_BYTES = 8 << 20  # in every round


def main() -> None:
    """Do what the file says."""
    spec = Path(sys.argv[1])
    with leave_errors(spec.parent):
        run(json.loads(spec.read_text()), spec.parent)


@contextlib.contextmanager
def leave_errors(place: Path) -> Iterator[None]:
    """What is raised ends the process, and lies in `error.txt`: its class, and its words below."""
    try:
        yield
    except Exception as error:
        (place / "error.txt").write_text(f"{type(error).__name__}\n{error}")
        sys.exit(1)


def run(values: dict[str, Any], place: Path) -> None:
    """The first case several times, then the others; one of these that fails is left out."""
    end_with_parent(values["parent"])
    file = Path(values["file"])
    if values["quantize"] is not None:
        from slipstream.infer.elsewhere.quantize import quantize

        quantize(Path(values["quantize"]["of"]), file, place / "calibration.npz")
    opened = Runtime(**values["runtime"]).open(file)
    cases = load_lists(place / "inputs.npz")
    given = {0: repeated(opened, cases[0])}
    for number in range(1, len(cases)):
        with contextlib.suppress(Exception):
            given[number] = opened(cases[number])
    save_lists(place / "outputs.npz", given)


def repeated(opened: Opened, arrays: Sequence[Array]) -> list[Array]:
    """What several calls give. Raises if the process grows with every one of them, for as many
    calls as there is time.
    """
    for _ in range(_WARM_UP):
        given = opened(arrays)
    kept = [array.copy() for array in given]
    ends = time.monotonic() + _MOST_S
    sizes = [_resident_bytes()]
    while len(sizes) <= _ROUNDS and time.monotonic() < ends:
        for _ in range(_CALLS_A_ROUND):
            given = opened(arrays)
        sizes.append(_resident_bytes())
    grown = [after - before for before, after in itertools.pairwise(sizes)]
    if len(grown) == _ROUNDS and min(grown) > _LEAK_BYTES:
        per_call = sum(grown) / (_ROUNDS * _CALLS_A_ROUND * 2**20)
        raise MemoryError(f"the process grows by {per_call:.0f} MB with every call")
    for one, other in zip(given, kept, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise ValueError("results of the same inputs have other shapes from call to call")
    return kept


def _resident_bytes() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    main()
