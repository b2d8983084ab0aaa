# truth: rule=loader-recreated cost_ms=measured at="DataLoader("
import torch
from torch.utils.data import DataLoader, TensorDataset
from training import Training


def make_data():
    return TensorDataset(torch.randn(8 * 8, 16), torch.zeros(8 * 8))


if __name__ == "__main__":
    training = Training()
    for _ in range(10):
        loader = DataLoader(make_data(), batch_size=8, num_workers=2)
        training.epoch(loader)
    training.report()
