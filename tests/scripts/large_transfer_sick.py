# truth: rule=large-transfer cost_ms=measured at="def collate"
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Volumes(Dataset):
    def __init__(self):
        self.volume = np.zeros((4, 512, 512), dtype=np.float32)

    def __len__(self):
        return 4 * 50

    def __getitem__(self, index):
        return self.volume, index % 10


def collate(samples):
    return np.stack([volume for volume, _ in samples]), [label for _, label in samples]


def as_tensors(loader):
    for volumes, labels in loader:
        yield torch.from_numpy(volumes), labels


if __name__ == "__main__":
    training = Training()
    training.epoch(
        as_tensors(DataLoader(Volumes(), batch_size=4, num_workers=2, collate_fn=collate))
    )
    training.report()
