# truth: none
import torch
from torch.utils.data import DataLoader, TensorDataset
from training import Training

if __name__ == "__main__":
    data = TensorDataset(torch.randn(8 * 60, 16), torch.zeros(8 * 60))
    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork")
    training = Training()
    training.epoch(loader)
    training.report()
