# truth: none
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training, work


class Centre:
    def __call__(self, x):
        return x - x.mean()


class Denoise:
    def __init__(self, ms):
        self.ms = ms

    def __call__(self, x):
        work(self.ms)
        return x


class Chain:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, x):
        for step in self.steps:
            x = step(x)
        return x


class Signals(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 8 * 50

    def __getitem__(self, index):
        return self.transform(torch.full((256,), float(index))), index % 10


if __name__ == "__main__":
    data = Signals(Chain([Centre(), Denoise(0.1)]))
    training = Training()
    training.epoch(DataLoader(data, batch_size=8, num_workers=1))
    training.report()
