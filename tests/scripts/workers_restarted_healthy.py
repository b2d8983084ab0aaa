# truth: none
import torch
from torch.utils.data import DataLoader, TensorDataset
from training import Training

if __name__ == "__main__":
    data = TensorDataset(torch.randn(8 * 8, 16), torch.zeros(8 * 8))
    loader = DataLoader(data, batch_size=8, num_workers=2, persistent_workers=True)
    training = Training()
    for _ in range(10):
        training.epoch(loader)
    training.report()
