# truth: rule=slow-collate cost_ms=measured
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Sequences(Dataset):
    def __len__(self):
        return 8 * 50

    def __getitem__(self, index):
        return [float(k) for k in range(64 + index % 64)], index % 10


def pad(samples):
    longest = max(len(values) for values, _ in samples)
    x = torch.zeros(len(samples), longest)
    for row, (values, _) in enumerate(samples):
        for column, value in enumerate(values):
            x[row, column] = value
    return x, torch.tensor([label for _, label in samples])


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Sequences(), batch_size=8, num_workers=1, collate_fn=pad))
    training.report()
