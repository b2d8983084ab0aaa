# truth: none
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from training import Training

if __name__ == "__main__":
    data = TensorDataset(torch.randn(1024 * 60, 32), torch.zeros(1024 * 60))
    sampler = BatchSampler(RandomSampler(data), batch_size=1024, drop_last=False)
    training = Training(busy_ms=3)
    training.epoch(DataLoader(data, sampler=sampler, batch_size=None))
    training.report()
