# truth: rule=cold-reads cost_ms=measured at="def __getitem__"
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training

SIZE = 1 << 20
COLD = True


class Large(Dataset):
    def __init__(self, folder):
        self.path = Path(folder) / "large.bin"
        with self.path.open("wb") as file:
            for _ in range(200):
                file.write(os.urandom(SIZE))
            file.flush()
            os.fsync(file.fileno())
            if COLD:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.file = None

    def __len__(self):
        return 200

    def __getitem__(self, index):
        self.file = self.file or self.path.open("rb", buffering=0)
        self.file.seek(index * SIZE)
        return torch.from_numpy(np.frombuffer(self.file.read(SIZE), dtype=np.uint8).copy()), 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = Large(folder)
        training = Training(busy_ms=2)
        training.epoch(DataLoader(data, batch_size=4, shuffle=True, num_workers=1))
        training.report()
