# truth: none
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Decoded(Dataset):
    def __init__(self):
        self.pixels = np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8)

    def __len__(self):
        return 8 * 50

    def __getitem__(self, index):
        return torch.from_numpy(self.pixels[16:240, 16:240]).permute(2, 0, 1), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Decoded(), batch_size=8, num_workers=1))
    training.report()
