"""Packed datasets with bytes turned over."""

from pathlib import Path

import slipstream


def damage(path: Path, field: str, indices: list[int], byte: int = 0) -> None:
    """Turn over one byte of a field of these samples."""
    dataset = slipstream.open_dataset(path)
    for index in indices:
        file = path / Path(dataset._store.find(index)[0].where).name
        data = bytearray(file.read_bytes())
        data[int(dataset.rows(field, [index]).offsets[0]) + byte] ^= 0xFF
        file.write_bytes(data)
