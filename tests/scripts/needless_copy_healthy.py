# truth: none
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Signals(Dataset):
    def __init__(self):
        self.signals = np.zeros((64, 500), dtype=np.float32)

    def __len__(self):
        return 64 * 50

    def __getitem__(self, index):
        return torch.from_numpy(self.signals[index % 64]), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Signals(), batch_size=64, num_workers=1))
    training.report()
