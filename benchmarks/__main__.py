"""Measure the published ratios and print them beside their targets.

    make bench PHOTOS=folder/of/jpegs

Without PHOTOS the pictures are made. Nothing else should run on the machine meanwhile.
"""

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks import checksums, decoding, loading, packing, resizing
from benchmarks.claim import show_claims
from benchmarks.machine import describe_machine
from slipstream.cli.photos import write_photos


def main() -> None:
    """Run every benchmark on one folder of photos."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--photos", type=Path, help="folder of JPEGs; made if not given")
    parser.add_argument("--tools", type=Path, default=Path("build/bench"), help="built programs")
    parser.add_argument("--peers", type=Path, help="Python that has OpenCV, torch and xxhash")
    parser.add_argument("--save", type=Path, help="write the numbers and the machine as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as place:
        photos = options.photos
        if photos is None:
            photos = Path(place) / "photos"
            write_photos(photos, 200)
        files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in _ENDINGS)
        if not files:
            parser.error(f"no JPEGs below {photos}")
        claims = [
            *decoding.measure(options.tools / "decode_rate", files, Path(place)),
            *resizing.measure(options.peers, files),
            *packing.measure(files, Path(place)),
            *checksums.measure(options.peers, files),
            *loading.measure(options.peers, files, Path(place)),
        ]
    machine = describe_machine()
    what = "made pictures" if options.photos is None else "photos"
    show_claims(claims, f"{len(files)} {what} on {machine['processor']}, {machine['cores']} cores")
    if options.save:
        report = {"machine": machine, "pictures": what, "claims": [c.as_dict() for c in claims]}
        options.save.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


_ENDINGS = {".jpg", ".jpeg"}


if __name__ == "__main__":
    main()
