# truth: none
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Volumes(Dataset):
    def __init__(self):
        self.volume = torch.zeros((4, 512, 512), dtype=torch.uint8)

    def __len__(self):
        return 4 * 50

    def __getitem__(self, index):
        return self.volume, np.int64(index % 10)


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Volumes(), batch_size=4, num_workers=2))
    training.report()
