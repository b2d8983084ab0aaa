# truth: rule=wide-dtype cost_ms=measured
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training

DTYPE = torch.float64


class Signals(Dataset):
    def __init__(self):
        self.signals = torch.zeros((64, 60_000), dtype=DTYPE)

    def __len__(self):
        return 64 * 120

    def __getitem__(self, index):
        return self.signals[index % 64], index % 10


if __name__ == "__main__":
    training = Training(busy_ms=8)
    training.epoch(DataLoader(Signals(), batch_size=64, num_workers=2))
    training.report()
