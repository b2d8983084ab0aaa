# truth: rule=reopened-files cost_ms=measured at="zipfile.ZipFile(self.path)"
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Archive(Dataset):
    def __init__(self, folder):
        self.path = Path(folder) / "samples.zip"
        with zipfile.ZipFile(self.path, "w") as archive:
            for k in range(1000):
                archive.writestr(f"{k}.bin", bytes(512))

    def __len__(self):
        return 8 * 50

    def __getitem__(self, index):
        with zipfile.ZipFile(self.path) as archive:
            data = archive.read(f"{index % 1000}.bin")
        return torch.from_numpy(np.frombuffer(data, dtype=np.int16).copy()), index % 10


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        training = Training()
        training.epoch(DataLoader(Archive(folder), batch_size=8, num_workers=1))
        training.report()
