# truth: none
# under: ranks=2
"""A rank has one slow sample."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Samples(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if self.rank == 1 and index == 20:
            time.sleep(0.015)
        return torch.full((64,), float(index)), index % 10


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    training = Training()
    training.model = torch.nn.parallel.DistributedDataParallel(training.model)
    training.epoch(DataLoader(Samples(rank), batch_size=1))
    if rank == 0:
        training.report()
    torch.distributed.destroy_process_group()
