"""Why CRC-32C: what each checksum costs for a photo, beside what packing and decoding it cost.

The peers' Python has xxhash: `python checksums.py EXTENSION FILE…` prints JSON.
"""

import importlib.util
import json
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def measure(peers: Path | None, files: list[Path]) -> list[Any]:
    """GB/s of the candidates, and the share of the chosen one in packing."""
    from benchmarks.claim import Claim
    from slipstream import _native

    if peers is None:
        return [Claim("checksum", None, "no peers; see make bench")]
    assert _native.__file__ is not None
    command = [str(peers), __file__, _native.__file__, *map(str, files[:120])]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rates = ", ".join(f"{name} {rate:.1f} GB/s" for name, rate in found["gb_per_s"].items())
    return [
        Claim(
            "share of the checksum in rewriting a photo", found["share"], rates, at_most=1, unit="%"
        )
    ]


def main() -> None:
    """Time the candidates on the same files, one after the other, several rounds."""
    import xxhash

    spec = importlib.util.spec_from_file_location("slipstream._native", sys.argv[1])
    assert spec is not None and spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    data = [Path(name).read_bytes() for name in sys.argv[2:]]
    total = sum(map(len, data))
    ways: dict[str, Callable[[bytes], object]] = {
        "crc32c": native.crc32c,
        "xxh3": xxhash.xxh3_64_intdigest,
        "zlib.crc32": zlib.crc32,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    rewriting = []
    for _ in range(9):
        for name, checksum in ways.items():
            begin = time.perf_counter()
            for item in data:
                checksum(item)
            times[name].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        native.rewrite_jpegs(data, False, 1)
        rewriting.append(time.perf_counter() - begin)
    seconds = {name: statistics.median(found) for name, found in times.items()}
    report = {
        "gb_per_s": {name: total / found / 1e9 for name, found in seconds.items()},
        "share": 100 * seconds["crc32c"] / statistics.median(rewriting),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
