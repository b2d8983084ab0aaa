# truth: none
"""The same with half of the machine's memory."""

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Large(Dataset):
    """A batch takes 4 MiB."""

    def __len__(self):
        return 4 * 40

    def __getitem__(self, index):
        return torch.full((1 << 20,), index % 256, dtype=torch.uint8), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Large(), batch_size=4, num_workers=2, prefetch_factor=6))
    training.report()
