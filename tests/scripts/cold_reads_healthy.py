# truth: none
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training

SIZE = 4 << 10
COUNT = 10240
COLD = False


class Large(Dataset):
    def __init__(self, folder):
        self.path = Path(folder) / "large.bin"
        with self.path.open("wb") as file:
            for _ in range(64):
                file.write(os.urandom(SIZE * COUNT // 64))
            file.flush()
            os.fsync(file.fileno())
            if COLD:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.file = None

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)
        data = os.pread(self.file, SIZE, index * SIZE)
        return torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy()), 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = Large(folder)
        training = Training(busy_ms=10)
        training.epoch(DataLoader(data, batch_size=256, shuffle=True, num_workers=1))
        training.report()
