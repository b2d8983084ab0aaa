# truth: rule=small-files cost_ms=measured at="def __getitem__"
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Folder(Dataset):
    def __init__(self, folder):
        self.files = [Path(folder) / f"{k}.bin" for k in range(4000)]
        for file in self.files:
            file.write_bytes(bytes(1024))

    def __len__(self):
        return 500 * 40

    def __getitem__(self, index):
        data = self.files[index % len(self.files)].read_bytes()
        return torch.from_numpy(np.frombuffer(data, dtype=np.int16).copy()), index % 10


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = Folder(folder)
        training = Training(busy_ms=6)
        training.epoch(DataLoader(data, batch_size=500, num_workers=1))
        training.report()
