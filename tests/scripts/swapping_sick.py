# truth: rule=swapping cost_ms=measured
# under: memory=350M
"""More data than memory: what is read next lies on the disk again."""

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Held(Dataset):
    """All of the data in memory."""

    def __init__(self):
        self.rows = torch.ones(8 * 60, 1 << 20, dtype=torch.uint8)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Held(), batch_size=8))
    training.report()
