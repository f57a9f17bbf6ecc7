"""A PyTorch Lightning module with a training and a validation loader.

torchrun --nproc-per-node 2 examples/lightning_module.py --max-steps 10
stash profile examples/lightning_module.py --nproc-per-node 2
"""

from __future__ import annotations

import argparse
import os

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.network(inputs), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> None:
        inputs, labels = batch
        right = (self.network(inputs).argmax(1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def make_loader(samples: int, *, shuffle: bool) -> DataLoader[tuple[torch.Tensor, ...]]:
    data = TensorDataset(torch.randn(samples, 64), torch.randint(0, 10, (samples,)))
    return DataLoader(data, batch_size=8, shuffle=shuffle, num_workers=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-steps", type=int, default=100_000)
    options = parser.parse_args()
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        accelerator="auto",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp",
        max_steps=options.max_steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), make_loader(512, shuffle=True), make_loader(64, shuffle=False))
    if trainer.is_global_zero:
        loss = trainer.callback_metrics["loss"]
        print(f"{trainer.global_step} steps, loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
