"""`slipstream verify DST`"""

from pathlib import Path
from typing import Annotated

import typer

EXIT_FINDINGS = 1


def verify(
    path: Annotated[Path, typer.Argument(help="A packed dataset.")],
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads; by default all cores.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Problems to print at most.")] = 100,
) -> None:
    """Check every byte of a dataset against its checksums. Exits 1 when something is wrong."""
    import sys

    from slipstream.cli.progress import format_bytes, show_progress
    from slipstream.errors import CorruptDataset
    from slipstream.store.reader import read_manifest
    from slipstream.store.verify import verify_dataset
    from slipstream.words import count_of

    total: int | None = None
    samples = 0
    try:
        manifest = read_manifest(path)
        total, samples = sum(shard.bytes for shard in manifest.shards), manifest.samples
    except CorruptDataset:
        pass  # verify_dataset reports it as a problem
    done = found = 0
    with show_progress("verifying", "bytes") as report:

        def advance(checked_bytes: int) -> None:
            nonlocal done
            done += checked_bytes
            report(done, total)

        for problem in verify_dataset(path, threads=threads, progress=advance):
            found += 1
            if found <= limit:
                print(problem, flush=True)
    if found:
        print(f"{path}: {count_of(found, 'problem')}.", file=sys.stderr)
        raise typer.Exit(EXIT_FINDINGS)
    print(f"{path}: all well: {count_of(samples, 'sample')}, {format_bytes(total or 0)}.")
