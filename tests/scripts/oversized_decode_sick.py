# truth: rule=oversized-decode cost_ms=measured at="Image.open"
import io

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from training import Training

SIDE = 1024


class Photos(Dataset):
    def __init__(self):
        pixels = np.random.default_rng(0).integers(0, 255, (SIDE // 8, SIDE // 8, 3), np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).resize((SIDE, SIDE)).save(out, "JPEG")
        self.file = out.getvalue()

    def __len__(self):
        return 4 * 50

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.file)).resize((96, 96))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Photos(), batch_size=4, num_workers=1))
    training.report()
