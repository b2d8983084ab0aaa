# truth: rule=too-few-workers cost_ms=15 at="DataLoader("
import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class FarAway(Dataset):
    def __len__(self):
        return 8 * 60

    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.full((16,), float(index)), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(FarAway(), batch_size=8, num_workers=1))
    training.report()
