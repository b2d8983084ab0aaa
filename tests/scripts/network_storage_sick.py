# truth: rule=network-storage cost_ms=measured at="read_bytes()"
# under: network
"""Files on a server, read one by one."""

import os
import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Files(Dataset):
    """A file for each sample."""

    def __init__(self, folder):
        self.paths = [folder / f"{number}.bin" for number in range(4 * 40)]
        for path in self.paths:
            path.write_bytes(bytes(1 << 15))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.frombuffer(bytearray(self.paths[index].read_bytes()), dtype=torch.uint8), 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=os.environ.get("FOLDER")) as folder:
        training = Training()
        training.epoch(DataLoader(Files(Path(folder)), batch_size=4, num_workers=1))
        training.report()
