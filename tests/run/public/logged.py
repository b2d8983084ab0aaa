"""A trainer class that writes its scalars as TensorBoard does, reads its settings from a file
beside the folder it is started in, and goes on from its latest checkpoint.
"""

import csv
import json
import logging
import os
import struct
import sys
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("trainer")


class SummaryWriter:
    """Records of events: a length, its check, the bytes, their check."""

    def __init__(self, log_dir):
        os.makedirs(log_dir, exist_ok=True)
        self.file = open(f"{log_dir}/events.out.tfevents.0", "ab")

    def add_scalar(self, tag, value, step):
        data = json.dumps({"tag": tag, "value": float(value), "step": step}).encode()
        head = struct.pack("<Q", len(data))
        self.file.write(head + struct.pack("<I", zlib.crc32(head)))
        self.file.write(data + struct.pack("<I", zlib.crc32(data)))

    def close(self):
        self.file.close()


class Table(Dataset):
    """Reads its rows from a CSV file, relative to where the script was started."""

    def __init__(self, path):
        with open(path, newline="") as file:
            self.rows = [[float(value) for value in row] for row in csv.reader(file)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return torch.tensor(row[:-1]), torch.tensor(row[-1:])


class Trainer:
    def __init__(self, config):
        self.config = config
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config["lr"])
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, config["lr"], total_steps=config["total_steps"]
        )
        self.step, self.epoch = 0, 0
        self.writer = SummaryWriter("runs/first")
        self.path = "runs/latest.pt"
        if os.path.exists(self.path):
            state = torch.load(self.path)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
            self.step, self.epoch = state["step"], state["epoch"]
            torch.set_rng_state(state["random"])
            logger.info("resumed at epoch %d", self.epoch)
            print(f"resumed at epoch {self.epoch}, step {self.step}")

    def save(self):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "step": self.step,
            "epoch": self.epoch,
            "random": torch.get_rng_state(),
        }
        torch.save(state, self.path + ".tmp")
        os.replace(self.path + ".tmp", self.path)

    def fit(self, loader, epochs):
        while self.epoch < epochs:
            began, total = time.perf_counter(), 0.0
            for x, y in loader:
                loss = nn.functional.smooth_l1_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.step += 1
                total += loss.item()
                if self.step % 5 == 0:
                    self.writer.add_scalar("train/loss", loss, self.step)
                    self.writer.add_scalar("train/norm", norm, self.step)
            self.epoch += 1
            took = time.perf_counter() - began
            logger.info("epoch %d took %.3f s", self.epoch, took)
            print(f"epoch {self.epoch}: loss {total / len(loader):.9f}")
            self.save()
        self.writer.close()


def main():
    with open("config.json") as file:
        config = json.load(file)
    os.makedirs("runs", exist_ok=True)
    handler = logging.FileHandler("runs/train.log")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    torch.manual_seed(config["seed"])
    loader = DataLoader(Table("rows.csv"), batch_size=config["batch_size"], shuffle=True)
    Trainer(config).fit(loader, int(sys.argv[1]) if len(sys.argv) > 1 else 2)


if __name__ == "__main__":
    main()
