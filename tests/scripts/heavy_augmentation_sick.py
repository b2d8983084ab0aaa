# truth: rule=heavy-augmentation cost_ms=measured
import random

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training, work

MS = 1.2


def jitter(x):
    work(MS)
    return x * random.random()


def noise(x):
    work(MS)
    return x + torch.randn(x.shape)


def shift(x):
    work(MS)
    return x.roll(random.randrange(8))


class Signals(Dataset):
    def __init__(self, transforms):
        self.transforms = transforms

    def __len__(self):
        return 8 * 50

    def __getitem__(self, index):
        x = torch.full((256,), float(index))
        for transform in self.transforms:
            x = transform(x)
        return x, index % 10


if __name__ == "__main__":
    training = Training()
    data = Signals([jitter, noise, shift])
    training.epoch(DataLoader(data, batch_size=8, num_workers=1))
    training.report()
