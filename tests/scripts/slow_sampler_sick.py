# truth: rule=slow-sampler cost_ms=8 at="def __iter__"
import torch
from torch.utils.data import DataLoader, TensorDataset
from training import Training, work


class Balanced:
    """Looks for the next sample in all of the dataset."""

    def __len__(self):
        return 8 * 60

    def __iter__(self):
        for k in range(len(self)):
            work(1.0)
            yield k


if __name__ == "__main__":
    data = TensorDataset(torch.randn(8 * 60, 16), torch.zeros(8 * 60))
    training = Training()
    training.epoch(DataLoader(data, batch_size=8, sampler=Balanced(), num_workers=1))
    training.report()
