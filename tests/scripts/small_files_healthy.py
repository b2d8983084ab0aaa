# truth: none
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Packed(Dataset):
    def __init__(self, folder):
        path = Path(folder) / "all.bin"
        path.write_bytes(bytes(1024 * 4000))
        self.samples = torch.from_numpy(np.fromfile(path, dtype=np.int16).reshape(4000, 512))

    def __len__(self):
        return 500 * 60

    def __getitems__(self, indices):
        return self.samples[torch.tensor(indices) % len(self.samples)], torch.zeros(len(indices))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = Packed(folder)
        training = Training(busy_ms=6)
        training.epoch(DataLoader(data, batch_size=500, num_workers=1, collate_fn=tuple))
        training.report()
