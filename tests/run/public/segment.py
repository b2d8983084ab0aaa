"""A U-Net that finds shapes; Dice and cross-entropy, a bar where tqdm is installed."""

import argparse
import logging
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, random_split

try:
    from tqdm import tqdm
except ImportError:

    class tqdm:
        def __init__(self, iterable=None, total=None, **kwargs):
            self.iterable, self.postfix = iterable, {}

        def __enter__(self):
            return self

        def __exit__(self, *args):
            return None

        def __iter__(self):
            return iter(self.iterable)

        def update(self, n=1):
            pass

        def set_postfix(self, **values):
            self.postfix = values


dir_img, dir_mask = Path("./data/imgs/"), Path("./data/masks/")
dir_checkpoint = Path("./checkpoints/")


def make_data(count, side=72):
    rng = np.random.default_rng(0)
    for folder in (dir_img, dir_mask):
        folder.mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[:side, :side]
    for number in range(count):
        y, x, radius = [*rng.integers(16, side - 16, 2).tolist(), int(rng.integers(6, 16))]
        mask = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
        picture = rng.integers(0, 90, (side, side, 3)) + 120 * mask[..., None]
        Image.fromarray(picture.astype(np.uint8)).save(dir_img / f"{number:03d}.jpg")
        Image.fromarray(mask.astype(np.uint8)).save(dir_mask / f"{number:03d}_mask.png")


class BasicDataset(Dataset):
    def __init__(self, images_dir, mask_dir, scale=1.0, mask_suffix="_mask"):
        self.images_dir, self.mask_dir = Path(images_dir), Path(mask_dir)
        assert 0 < scale <= 1, "Scale must be between 0 and 1"
        self.scale, self.mask_suffix = scale, mask_suffix
        self.ids = sorted(file.stem for file in self.images_dir.iterdir())
        if not self.ids:
            raise RuntimeError(f"No input file found in {images_dir}")
        logging.info("Creating dataset with %d examples", len(self.ids))
        self.mask_values = [0, 1]

    def __len__(self):
        return len(self.ids)

    @staticmethod
    def preprocess(mask_values, pil_img, scale, is_mask):
        w, h = pil_img.size
        new_w, new_h = int(scale * w), int(scale * h)
        pil_img = pil_img.resize(
            (new_w, new_h), resample=Image.NEAREST if is_mask else Image.BICUBIC
        )
        img = np.asarray(pil_img)
        if is_mask:
            mask = np.zeros((new_h, new_w), dtype=np.int64)
            for i, v in enumerate(mask_values):
                mask[img == v] = i
            return mask
        img = img.transpose((2, 0, 1))
        if (img > 1).any():
            img = img / 255.0
        return img

    def __getitem__(self, idx):
        name = self.ids[idx]
        mask_file = list(self.mask_dir.glob(name + self.mask_suffix + ".*"))
        img_file = list(self.images_dir.glob(name + ".*"))
        assert len(img_file) == 1, f"No or several images for {name}"
        mask = Image.open(mask_file[0])
        img = Image.open(img_file[0])
        assert img.size == mask.size, f"{name}: sizes differ"
        img = self.preprocess(self.mask_values, img, self.scale, is_mask=False)
        mask = self.preprocess(self.mask_values, mask, self.scale, is_mask=True)
        return {
            "image": torch.as_tensor(img.copy()).float().contiguous(),
            "mask": torch.as_tensor(mask.copy()).long().contiguous(),
        }


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, width=4):
        super().__init__()
        self.n_classes = n_classes
        self.inc = DoubleConv(n_channels, width)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(width, 2 * width))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(2 * width, 4 * width))
        self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, kernel_size=2, stride=2)
        self.conv1 = DoubleConv(4 * width, 2 * width)
        self.up2 = nn.ConvTranspose2d(2 * width, width, kernel_size=2, stride=2)
        self.conv2 = DoubleConv(2 * width, width)
        self.outc = nn.Conv2d(width, n_classes, kernel_size=1)

    def join(self, x1, x2):
        dy, dx = x2.size(2) - x1.size(2), x2.size(3) - x1.size(3)
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return torch.cat([x2, x1], dim=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x = self.conv1(self.join(self.up1(x3), x2))
        return self.outc(self.conv2(self.join(self.up2(x), x1)))


def dice_coeff(inputs, target, epsilon=1e-6):
    dims = (-1, -2)
    inter = 2 * (inputs * target).sum(dim=dims)
    sets_sum = inputs.sum(dim=dims) + target.sum(dim=dims)
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
    return ((inter + epsilon) / (sets_sum + epsilon)).mean()


def dice_loss(inputs, target):
    return 1 - dice_coeff(inputs.flatten(0, 1), target.flatten(0, 1))


@torch.inference_mode()
def evaluate(net, dataloader, device):
    net.eval()
    score = 0
    for batch in tqdm(dataloader, total=len(dataloader), desc="Validation", leave=False):
        image = batch["image"].to(device=device, dtype=torch.float32)
        mask_true = batch["mask"].to(device=device, dtype=torch.long)
        mask_pred = net(image)
        mask_true = F.one_hot(mask_true, net.n_classes).permute(0, 3, 1, 2).float()
        mask_pred = F.one_hot(mask_pred.argmax(dim=1), net.n_classes).permute(0, 3, 1, 2).float()
        score += dice_coeff(mask_pred[:, 1:].flatten(0, 1), mask_true[:, 1:].flatten(0, 1))
    net.train()
    return score / max(len(dataloader), 1)


def train_model(model, device, epochs, batch_size, learning_rate, amp, val_percent=0.2):
    dataset = BasicDataset(dir_img, dir_mask, 0.5)
    n_val = int(len(dataset) * val_percent)
    n_train = len(dataset) - n_val
    train_set, val_set = random_split(
        dataset, [n_train, n_val], generator=torch.Generator().manual_seed(0)
    )
    loader_args = {"batch_size": batch_size, "num_workers": 0, "pin_memory": device.type == "cuda"}
    train_loader = DataLoader(train_set, shuffle=True, **loader_args)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, **loader_args)
    optimizer = optim.RMSprop(
        model.parameters(), lr=learning_rate, weight_decay=1e-8, momentum=0.9, foreach=True
    )
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    grad_scaler = torch.amp.GradScaler(device.type, enabled=amp)
    criterion = nn.CrossEntropyLoss()
    global_step = 0
    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0
        with tqdm(total=n_train, desc=f"Epoch {epoch}/{epochs}", unit="img") as pbar:
            for batch in train_loader:
                images, true_masks = batch["image"], batch["mask"]
                assert images.shape[1] == 3
                images = images.to(
                    device=device, dtype=torch.float32, memory_format=torch.channels_last
                )
                true_masks = true_masks.to(device=device, dtype=torch.long)
                with torch.autocast(device.type, enabled=amp):
                    masks_pred = model(images)
                    loss = criterion(masks_pred, true_masks)
                    loss += dice_loss(
                        F.softmax(masks_pred, dim=1).float(),
                        F.one_hot(true_masks, model.n_classes).permute(0, 3, 1, 2).float(),
                    )
                optimizer.zero_grad(set_to_none=True)
                grad_scaler.scale(loss).backward()
                grad_scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                grad_scaler.step(optimizer)
                grad_scaler.update()
                pbar.update(images.shape[0])
                global_step += 1
                epoch_loss += loss.item()
                pbar.set_postfix(**{"loss (batch)": loss.item()})
                division_step = n_train // (5 * batch_size)
                if division_step > 0 and global_step % division_step == 0:
                    histograms = {}
                    for tag, value in model.named_parameters():
                        if not (torch.isinf(value) | torch.isnan(value)).any():
                            histograms["Weights/" + tag] = value.data.cpu()
                    val_score = evaluate(model, val_loader, device)
                    scheduler.step(val_score)
                    logging.info("Validation Dice score: %.9f", val_score)
                    print(f"step {global_step} dice {val_score:.9f} loss {loss.item():.9f}")
        dir_checkpoint.mkdir(parents=True, exist_ok=True)
        state_dict = model.state_dict()
        state_dict["mask_values"] = dataset.mask_values
        torch.save(state_dict, str(dir_checkpoint / f"checkpoint_epoch{epoch}.pth"))
        print(f"epoch {epoch} loss {epoch_loss:.9f}")


def get_args():
    parser = argparse.ArgumentParser(description="Train the UNet on images and target masks")
    parser.add_argument("--epochs", "-e", type=int, default=2)
    parser.add_argument("--batch-size", "-b", dest="batch_size", type=int, default=4)
    parser.add_argument("--learning-rate", "-l", type=float, default=1e-4, dest="lr")
    parser.add_argument("--amp", action="store_true", default=False)
    parser.add_argument("--pictures", type=int, default=40)
    return parser.parse_args()


if __name__ == "__main__":
    args = get_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s", stream=sys.stderr)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not dir_img.exists():
        make_data(args.pictures)
    model = UNet(n_channels=3, n_classes=2)
    model = model.to(device=device, memory_format=torch.channels_last)
    try:
        train_model(model, device, args.epochs, args.batch_size, args.lr, args.amp)
    except torch.cuda.OutOfMemoryError:
        logging.error("Out of memory: try --amp")
        torch.cuda.empty_cache()
