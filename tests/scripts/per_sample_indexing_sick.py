# truth: rule=per-sample-indexing cost_ms=measured
import torch
from torch.utils.data import DataLoader, TensorDataset
from training import Training

if __name__ == "__main__":
    data = TensorDataset(torch.randn(1024 * 60, 32), torch.zeros(1024 * 60))
    training = Training(busy_ms=3)
    training.epoch(DataLoader(data, batch_size=1024, shuffle=True))
    training.report()
