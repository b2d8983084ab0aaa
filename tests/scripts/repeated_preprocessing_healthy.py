# truth: none
import random

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training, work


class Align:
    def __call__(self, x):
        work(0.05)
        return x - x.mean()


class Flip:
    def __call__(self, x):
        return x.flip(0) if random.random() < 0.5 else x


class Signals(Dataset):
    def __init__(self, transforms):
        self.transforms = transforms

    def __len__(self):
        return 8 * 20

    def __getitem__(self, index):
        x = torch.full((256,), float(index))
        for transform in self.transforms:
            x = transform(x)
        return x, index % 10


if __name__ == "__main__":
    training = Training()
    loader = DataLoader(
        Signals([Align(), Flip()]), batch_size=8, num_workers=1, persistent_workers=True
    )
    for _ in range(3):
        training.epoch(loader)
    training.report()
