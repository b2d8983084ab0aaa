"""A recipe with all the trimmings: mixup, a moving average of the model, clipping, a cosine."""

import argparse
import contextlib
import copy
import json
import logging
import math
import random
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

_logger = logging.getLogger("train")
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--samples", type=int, default=160)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--clip-grad", type=float, default=1.0)
parser.add_argument("--mixup", type=float, default=0.2)
parser.add_argument("--model-ema", action="store_true", default=True)
parser.add_argument("--model-ema-decay", type=float, default=0.99)
parser.add_argument("--warmup-epochs", type=int, default=1)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--output", default="output")
parser.add_argument("--seed", type=int, default=42)


class Pictures(Dataset):
    """Bytes, as the fast collate wants them."""

    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.pixels = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        self.labels = rng.integers(0, 10, count)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        pixels = self.pixels[index]
        if random.random() < 0.5:
            pixels = pixels[:, :, ::-1]
        return pixels, int(self.labels[index])


def fast_collate(batch):
    targets = torch.tensor([b[1] for b in batch], dtype=torch.int64)
    tensor = torch.zeros((len(batch), *batch[0][0].shape), dtype=torch.uint8)
    for i, (pixels, _) in enumerate(batch):
        tensor[i] += torch.from_numpy(np.ascontiguousarray(pixels))
    return tensor, targets


class PrefetchLoader:
    """Normalizes where the model is, a batch ahead."""

    def __init__(self, loader, device, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)):
        self.loader = loader
        self.device = device
        self.mean = torch.tensor([x * 255 for x in mean], device=device).view(1, 3, 1, 1)
        self.std = torch.tensor([x * 255 for x in std], device=device).view(1, 3, 1, 1)
        self.is_cuda = device.type == "cuda"

    def __iter__(self):
        first = True
        if self.is_cuda:
            stream = torch.cuda.Stream(device=self.device)
            context = lambda: torch.cuda.stream(stream)  # noqa: E731
        else:
            stream, context = None, contextlib.nullcontext
        for next_input, next_target in self.loader:
            with context():
                next_input = next_input.to(self.device, non_blocking=True)
                next_target = next_target.to(self.device, non_blocking=True)
                next_input = next_input.float().sub_(self.mean).div_(self.std)
            if not first:
                yield inputs, target  # noqa: F821
            else:
                first = False
            if stream is not None:
                torch.cuda.current_stream(self.device).wait_stream(stream)
            inputs, target = next_input, next_target
        yield inputs, target

    def __len__(self):
        return len(self.loader)

    @property
    def dataset(self):
        return self.loader.dataset


class ModelEma(nn.Module):
    def __init__(self, model, decay=0.9999):
        super().__init__()
        self.module = copy.deepcopy(model)
        self.module.eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ema_v, model_v in zip(
            self.module.state_dict().values(), model.state_dict().values(), strict=True
        ):
            ema_v.copy_(self.decay * ema_v + (1.0 - self.decay) * model_v)


def one_hot(target, classes, smoothing=0.1):
    off = smoothing / classes
    full = torch.full((target.shape[0], classes), off, device=target.device)
    return full.scatter_(1, target.view(-1, 1), 1.0 - smoothing + off)


def mixup(inputs, target, alpha, classes=10):
    lam = np.random.beta(alpha, alpha) if alpha > 0 else 1.0
    flipped = inputs.flip(0).mul_(1.0 - lam)
    inputs.mul_(lam).add_(flipped)
    return inputs, one_hot(target, classes) * lam + one_hot(target.flip(0), classes) * (1 - lam)


def soft_loss(output, target):
    return torch.sum(-target * torch.log_softmax(output, dim=-1), dim=-1).mean()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.point = nn.Conv2d(width, width, 1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.point(torch.nn.functional.gelu(self.norm(self.conv(x)))))


def create_model():
    return nn.Sequential(
        OrderedDict(
            stem=nn.Conv2d(3, 16, 4, stride=4),
            blocks=nn.Sequential(*[Block(16) for _ in range(3)]),
            pool=nn.AdaptiveAvgPool2d(1),
            flat=nn.Flatten(),
            head=nn.Linear(16, 10),
        )
    )


def cosine(step, total, warmup, base):
    if step < warmup:
        return base * (step + 1) / warmup
    return base * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def param_groups(model, weight_decay):
    decay = [p for p in model.parameters() if p.ndim > 1]
    no_decay = [p for p in model.parameters() if p.ndim <= 1]
    return [
        {"params": no_decay, "weight_decay": 0.0},
        {"params": decay, "weight_decay": weight_decay},
    ]


def train_one_epoch(epoch, model, loader, optimizer, args, device, ema, scaler):
    model.train()
    total, count = 0.0, 0
    updates = epoch * len(loader)
    for inputs, target in loader:
        if args.mixup:
            inputs, target = mixup(inputs, target, args.mixup)
        for group in optimizer.param_groups:
            group["lr"] = cosine(
                updates, args.epochs * len(loader), args.warmup_epochs * len(loader), 1e-3
            )
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp):
            loss = soft_loss(model(inputs), target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
            optimizer.step()
        if ema is not None:
            ema.update(model)
        total += loss.item() * inputs.size(0)
        count += inputs.size(0)
        updates += 1
        if updates % 10 == 0:
            _logger.info("Train: %d [%4d] Loss: %.9f", epoch, updates, total / count)
    return OrderedDict([("loss", total / count)])


def validate(model, loader):
    model.eval()
    total, right, count = 0.0, 0, 0
    with torch.no_grad():
        for inputs, target in loader:
            output = model(inputs)
            total += nn.functional.cross_entropy(output, target).item() * inputs.size(0)
            right += (output.argmax(1) == target).sum().item()
            count += inputs.size(0)
    return OrderedDict([("loss", total / count), ("top1", 100 * right / count)])


def main():
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = create_model().to(device)
    optimizer = torch.optim.AdamW(param_groups(model, 0.05), lr=1e-3)
    ema = ModelEma(model, args.model_ema_decay) if args.model_ema else None
    scaler = torch.amp.GradScaler() if args.amp and device.type == "cuda" else None
    train_set, eval_set = Pictures(args.samples), Pictures(args.samples // 4)
    loader_train, loader_eval = (
        PrefetchLoader(
            DataLoader(
                data,
                batch_size=args.batch_size,
                shuffle=is_train,
                num_workers=args.workers,
                collate_fn=fast_collate,
                drop_last=is_train,
                pin_memory=device.type == "cuda",
                persistent_workers=args.workers > 0,
            ),
            device,
        )
        for data, is_train in ((train_set, True), (eval_set, False))
    )
    folder = Path(args.output)
    folder.mkdir(exist_ok=True)
    (folder / "args.json").write_text(json.dumps(vars(args)))
    for epoch in range(args.epochs):
        trained = train_one_epoch(epoch, model, loader_train, optimizer, args, device, ema, scaler)
        tested = validate(ema.module if ema else model, loader_eval)
        with open(folder / "summary.csv", "a", encoding="utf-8") as file:
            file.write(f"{epoch},{trained['loss']:.9f},{tested['loss']:.9f},{tested['top1']}\n")
        torch.save(
            {"epoch": epoch, "state_dict": model.state_dict(), "ema": ema.module.state_dict()},
            folder / f"checkpoint-{epoch}.pth.tar",
        )
        print(f"epoch {epoch} train {trained['loss']:.9f} test {tested['loss']:.9f}")


if __name__ == "__main__":
    main()
