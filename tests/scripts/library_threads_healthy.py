# truth: none
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training

THREADS = 1


def prepare(worker):
    torch.set_num_threads(THREADS)


class Filtered(Dataset):
    def __init__(self):
        self.filter = torch.randn(128, 128)

    def __len__(self):
        return 8 * 60

    def __getitem__(self, index):
        x = self.filter
        for _ in range(2):
            x = x @ self.filter
        return x[0], index % 10


if __name__ == "__main__":
    training = Training()
    loader = DataLoader(Filtered(), batch_size=8, num_workers=2, worker_init_fn=prepare)
    training.epoch(loader)
    training.report()
