# truth: none
import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class FarAway(Dataset):
    def __len__(self):
        return 8 * 100

    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.full((16,), float(index)), index % 10


if __name__ == "__main__":
    training = Training(busy_ms=15)
    training.epoch(DataLoader(FarAway(), batch_size=8, num_workers=4))
    training.report()
