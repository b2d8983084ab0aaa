# truth: rule=storage-wait cost_ms=measured at="time.sleep("
import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class FarAway(Dataset):
    def __len__(self):
        return 8 * 80

    def __getitem__(self, index):
        time.sleep(0.03)
        return torch.full((16,), float(index)), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(FarAway(), batch_size=8, num_workers=8))
    training.report()
