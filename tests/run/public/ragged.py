"""Sentences of any length, padded by the collate function and packed for an LSTM."""

import random
import sys
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

SEED = 1234
random.seed(SEED)
torch.manual_seed(SEED)
BATCH_SIZE, CLIP = 8, 1.0
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
WORDS = ["good", "bad", "film", "the", "a", "plot", "was", "never", "always", "bright", "dull"]


def read_sentences(count):
    for _ in range(count):
        words = [random.choice(WORDS) for _ in range(random.randint(3, 25))]
        yield " ".join(words), int(words.count("good") + words.count("bright") > 2)


class Reviews(Dataset):
    def __init__(self, count):
        self.samples = list(read_sentences(count))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


vocabulary = {word: number for number, word in enumerate(["<pad>", "<unk>", *WORDS])}


def tokenize(text):
    return text.lower().split(" ")


def collate_batch(batch):
    labels, texts, lengths = [], [], []
    for text, label in batch:
        tokens = torch.tensor([vocabulary.get(w, 1) for w in tokenize(text)], dtype=torch.int64)
        texts.append(tokens)
        lengths.append(tokens.size(0))
        labels.append(label)
    return (
        torch.tensor(labels, dtype=torch.float32),
        pad_sequence(texts, batch_first=True, padding_value=0),
        torch.tensor(lengths, dtype=torch.int64),
    )


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(vocabulary), 16, padding_idx=0)
        self.rnn = nn.LSTM(16, 24, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True)
        self.fc = nn.Linear(48, 1)

    def forward(self, text, lengths):
        embedded = self.embedding(text)
        packed = pack_padded_sequence(
            embedded, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, (hidden, _) = self.rnn(packed)
        return self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1)).squeeze(1)


def binary_accuracy(preds, y):
    return (torch.round(torch.sigmoid(preds)) == y).float().mean()


def train(model, iterator, optimizer, criterion):
    epoch_loss = epoch_acc = 0
    model.train()
    for labels, text, lengths in iterator:
        optimizer.zero_grad()
        predictions = model(text, lengths)
        loss = criterion(predictions, labels)
        acc = binary_accuracy(predictions, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        epoch_loss += loss.item()
        epoch_acc += acc.item()
    return epoch_loss / len(iterator), epoch_acc / len(iterator)


def evaluate(model, iterator, criterion):
    epoch_loss = epoch_acc = 0
    model.eval()
    with torch.no_grad():
        for labels, text, lengths in iterator:
            predictions = model(text, lengths)
            epoch_loss += criterion(predictions, labels).item()
            epoch_acc += binary_accuracy(predictions, labels).item()
    return epoch_loss / len(iterator), epoch_acc / len(iterator)


train_iter = DataLoader(Reviews(160), BATCH_SIZE, shuffle=True, collate_fn=collate_batch)
valid_iter = DataLoader(Reviews(40), BATCH_SIZE, collate_fn=collate_batch)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.BCEWithLogitsLoss()
best_valid_loss = float("inf")
for epoch in range(EPOCHS):
    start_time = time.time()
    train_loss, train_acc = train(model, train_iter, optimizer, criterion)
    valid_loss, valid_acc = evaluate(model, valid_iter, criterion)
    if valid_loss < best_valid_loss:
        best_valid_loss = valid_loss
        torch.save(model.state_dict(), "model.pt")
    print(f"Epoch: {epoch + 1:02}")
    print(f"\tTrain Loss: {train_loss:.9f} | Train Acc: {train_acc * 100:.2f}%")
    print(f"\t Val. Loss: {valid_loss:.9f} |  Val. Acc: {valid_acc * 100:.2f}%")
