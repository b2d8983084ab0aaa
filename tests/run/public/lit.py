"""A module of Lightning, with validation and a checkpoint."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
        self.seen = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(x), y))

    def on_validation_epoch_end(self):
        print({name: f"{value:.9f}" for name, value in self.trainer.callback_metrics.items()})

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 1e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)]


def main():
    L.seed_everything(0)
    data = TensorDataset(torch.randn(480, 16), torch.randint(0, 4, (480,)))
    trainer = L.Trainer(
        max_epochs=2, logger=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False, default_root_dir="lightning", num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Model(), DataLoader(data, 16, shuffle=True), DataLoader(data, 32))


if __name__ == "__main__":
    main()
