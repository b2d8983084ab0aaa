# truth: rule=shallow-prefetch cost_ms=measured at="DataLoader("
import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Shards(Dataset):
    """Every 64 samples a new shard is fetched."""

    def __len__(self):
        return 8 * 100

    def __getitem__(self, index):
        if index % 72 == 0:
            time.sleep(0.1)
        return torch.full((16,), float(index)), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Shards(), batch_size=8, num_workers=2, prefetch_factor=1))
    training.report()
