# truth: none
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Sequences(Dataset):
    def __len__(self):
        return 8 * 50

    def __getitem__(self, index):
        return torch.arange(64.0 + index % 64), index % 10


def pad(samples):
    x = torch.nn.utils.rnn.pad_sequence([values for values, _ in samples], batch_first=True)
    return x, torch.tensor([label for _, label in samples])


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Sequences(), batch_size=8, num_workers=1, collate_fn=pad))
    training.report()
