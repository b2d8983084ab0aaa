# truth: none
"""As many workers as are needed."""

import hashlib
import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Busy(Dataset):
    """A sample takes 5 ms of a core, without Python's lock, as a decoder does."""

    def __init__(self):
        self.file = bytes(1 << 18)

    def __len__(self):
        return 4 * 10

    def __getitem__(self, index):
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            hashlib.sha256(self.file)
        return torch.full((16,), float(index)), index % 10


if __name__ == "__main__":
    training = Training(busy_ms=25.0)
    loader = DataLoader(Busy(), batch_size=4, num_workers=2, persistent_workers=True)
    for _ in range(16):
        training.epoch(loader)
    training.report()
