# truth: none
import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Uneven(Dataset):
    def __len__(self):
        return 8 * 80

    def __getitem__(self, index):
        if index % 53 == 7:
            time.sleep(0.002)
        else:
            time.sleep(0.001)
        return torch.full((16,), float(index)), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Uneven(), batch_size=8, num_workers=2))
    training.report()
