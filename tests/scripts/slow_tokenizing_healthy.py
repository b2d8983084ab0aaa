# truth: none
import torch
from torch.utils.data import DataLoader, Dataset
from training import Training

TEXT = "all happy families are alike every unhappy family is unhappy in its own way " * 12


def tokenize(text, vocabulary):
    ids = []
    word = ""
    for letter in text + " ":
        if letter.isalpha():
            word += letter.lower()
        elif word:
            ids.append(vocabulary.setdefault(word, len(vocabulary)))
            word = ""
    return ids[:64]


class Texts(Dataset):
    def __init__(self):
        self.ids = torch.tensor(tokenize(TEXT, {}))

    def __len__(self):
        return 96 * 40

    def __getitem__(self, index):
        return self.ids, index % 10


if __name__ == "__main__":
    training = Training()
    training.epoch(DataLoader(Texts(), batch_size=96, num_workers=1))
    training.report()
