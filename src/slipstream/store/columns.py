"""Index columns of a whole dataset: rows of them for samples wherever they lie, in one call."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream import _native
from slipstream.store.mapping import Map
from slipstream.store.schema import COLUMNS, Field
from slipstream.store.shard import Shard

ColumnNames = tuple[tuple[int, str], ...]  # numbers of fields, names of their columns


class Columns:
    """These columns of all shards. Shards are asked for when they are first needed. Thread-safe."""

    def __init__(
        self, names: ColumnNames, fields: Sequence[Field], firsts: npt.NDArray[np.int64]
    ) -> None:
        """`firsts` has the number of each shard's first sample, and how many there are in all.
        Raises KeyError for a column that there is not.
        """
        self._names = names
        self._dtypes = [_dtype(fields[field], name) for field, name in names]
        self._native = _native.ShardColumns(firsts, [dtype.itemsize for dtype in self._dtypes])

    def empty(self, count: int) -> list[npt.NDArray[Any]]:
        """Arrays for so many rows of each column."""
        return [np.empty(count, dtype) for dtype in self._dtypes]

    def gather(
        self,
        samples: npt.NDArray[np.int64],
        out: Sequence[npt.NDArray[Any]],
        shard: Callable[[int], Shard],
    ) -> tuple[list[Map], npt.NDArray[np.uint32]]:
        """Fill `out`. Returns the maps of the shards that the samples lie in, in the shards' order,
        and which of them is whose. Raises IndexError, and `CorruptDataset` with a shard's columns.
        """
        map_ids = np.empty(len(samples), dtype=np.uint32)
        closed, maps = self._native.gather(samples, map_ids, out)
        if closed:
            for number in closed:
                opened = shard(number)
                columns = [opened.column(field, name) for field, name in self._names]
                self._native.open(number, opened.map, columns)
            _, maps = self._native.gather(samples, map_ids, out)
        return maps, map_ids


def _dtype(field: Field, name: str) -> np.dtype[Any]:
    for id_ in field.column_ids:
        if COLUMNS[id_][0] == name:
            return np.dtype(COLUMNS[id_][1])
    known = ", ".join(COLUMNS[id_][0] for id_ in field.column_ids)
    raise KeyError(f'field "{field.name}" has no column "{name}". Its columns: {known}')
