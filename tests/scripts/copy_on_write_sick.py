# truth: rule=copy-on-write cost_ms=0 at="def __getitem__"
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Texts(Dataset):
    def __init__(self):
        self.texts = [
            f"sentence number {k}, of no great length, but long enough" for k in range(700_000)
        ]

    def __len__(self):
        return 16 * 100

    def __getitem__(self, index):
        # Objects from all over the list, as a shuffled dataset has them.
        some = [self.texts[(index * 7919 + 15013 * k) % len(self.texts)] for k in range(64)]
        return torch.full((16,), float(len(some[0]))), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Texts(), batch_size=16, num_workers=2))
    training.report()
