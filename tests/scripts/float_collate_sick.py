# truth: rule=float-collate cost_ms=measured
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class ToTensor:
    def __call__(self, pixels):
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div(255)


class Normalize:
    def __call__(self, x):
        return (x - 0.45) / 0.22


class Pictures(Dataset):
    def __init__(self, transforms):
        self.transforms = transforms
        self.pixels = np.zeros((8, 256, 256, 3), dtype=np.uint8)

    def __len__(self):
        return 32 * 50

    def __getitem__(self, index):
        x = self.pixels[index % 8]
        for transform in self.transforms:
            x = transform(x)
        return x, index % 10


if __name__ == "__main__":
    training = Training()
    data = Pictures([ToTensor(), Normalize()])
    training.epoch(DataLoader(data, batch_size=32, num_workers=1))
    training.report()
