"""A batch sampler may give the same list again and again: batches are drawn ahead."""

from collections.abc import Iterator

import torch

import slipstream


class Reused:
    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in range(12):
            batch.append(index)
            if len(batch) == 3:
                yield batch
                batch.clear()

    def __len__(self) -> int:
        return 4


def test_batches_are_those_of_the_moment() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(12))
    loader = slipstream.Loader(data, batch_sampler=Reused())
    assert [batch[0].tolist() for batch in loader] == [
        [0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11],
    ]  # fmt: skip
