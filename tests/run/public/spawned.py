"""Workers that are spawned: the script is imported again in each of them."""

import logging
import multiprocessing as mp
import os

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger(__name__)


class Waves(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = np.random.default_rng(index)
        wave = np.sin(np.arange(64) * generator.uniform(0.1, 1.0) + generator.uniform(0, 6))
        noise = torch.randn(64) * 0.1
        return torch.from_numpy(wave.astype(np.float32)) + noise, torch.tensor([wave.std()])


def seed_worker(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)


def square(number):
    return number * number


def main():
    logging.basicConfig(
        level=logging.INFO, filename="train.log", filemode="w", format="%(message)s"
    )
    torch.manual_seed(3)
    with mp.get_context("spawn").Pool(1) as pool:
        print("squares", sum(pool.map(square, range(10))))
    g = torch.Generator()
    g.manual_seed(0)
    loader = DataLoader(
        Waves(192), batch_size=16, shuffle=True, num_workers=1, worker_init_fn=seed_worker,
        generator=g, multiprocessing_context="spawn", persistent_workers=True,
    )  # fmt: skip
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log.info("epoch %d loss %.9f", epoch, loss.item())
        print(f"epoch {epoch} loss {loss.item():.9f} in {os.path.basename(os.getcwd()) != ''}")


if __name__ == "__main__":
    main()
