# truth: none
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Texts(Dataset):
    def __init__(self):
        self.texts = np.full((700_000, 60), ord("a"), dtype=np.uint8)

    def __len__(self):
        return 16 * 100

    def __getitem__(self, index):
        some = self.texts[(index * 7919 + 15013 * np.arange(64)) % len(self.texts)]
        return torch.full((16,), float(len(some[0]))), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Texts(), batch_size=16, num_workers=2))
    training.report()
