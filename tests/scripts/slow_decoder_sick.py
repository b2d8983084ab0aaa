# truth: rule=slow-decoder cost_ms=measured at="np.array(image)"
import io

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from training import Training


class Photos(Dataset):
    def __init__(self):
        pixels = np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "JPEG", quality=92)
        self.file = out.getvalue()

    def __len__(self):
        return 12 * 50

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.file))
        return torch.from_numpy(np.array(image)[16:240, 16:240]).permute(2, 0, 1), index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Photos(), batch_size=12, num_workers=1))
    training.report()
