# truth: none
"""The same without the fault."""

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training

COLUMNS = [f"x{number}" for number in range(16)]


class Table(Dataset):
    def __init__(self, frame):
        self.values = frame[COLUMNS].to_numpy(np.float32)
        self.labels = frame["label"].to_numpy(np.int64)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.from_numpy(self.values[index]), int(self.labels[index])


if __name__ == "__main__":
    numbers = np.random.default_rng(0).standard_normal((512 * 50, 16))
    frame = pd.DataFrame(numbers, columns=COLUMNS).assign(label=np.arange(len(numbers)) % 10)
    training = Training()
    training.epoch(DataLoader(Table(frame), batch_size=512, num_workers=1))
    training.report()
