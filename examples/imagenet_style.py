"""ImageNet-style training: arguments, warm-up and decay, validation, checkpoints, resume.

torchrun --nproc-per-node 2 examples/imagenet_style.py DIR --epochs 2 --output checkpoints
stash profile examples/imagenet_style.py --nproc-per-node 2 --protect checkpoints -- DIR
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE = 32
CLASSES = 4


class Folder(Dataset[tuple[torch.Tensor, int]]):
    """Pictures in one folder per class."""

    def __init__(self, root: Path, *, flip: bool) -> None:
        self.paths = sorted(root.glob("*/*.jpg"))
        self.classes = sorted({path.parent.name for path in self.paths})
        self.flip = flip

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB").resize((SIDE, SIDE)), dtype=np.float32)
        image = torch.from_numpy(pixels / 255).permute(2, 0, 1)
        if self.flip and torch.rand(()) < 0.5:
            image = image.flip(2)
        return image, self.classes.index(path.parent.name)


def write_pictures(root: Path, per_class: int) -> None:
    chance = np.random.default_rng(0)
    for split, count in (("train", per_class), ("val", per_class // 4)):
        for number in range(CLASSES):
            folder = root / split / f"class{number}"
            folder.mkdir(parents=True, exist_ok=True)
            for picture in range(count):
                pixels = chance.integers(0, 256, (48, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{picture:04d}.jpg", quality=90)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4)
        )
        self.classifier = nn.Linear(8 * (SIDE // 4) ** 2, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images).flatten(1))


def main() -> None:
    options = parse()
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    if rank == 0 and not options.data.exists():
        write_pictures(options.data, 64)
    dist.barrier()
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(Network())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), options.lr, momentum=0.9, weight_decay=options.weight_decay
    )
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=1),
            torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1),
        ],
        milestones=[1],
    )
    first_epoch, best = resume(options, model, optimizer, schedule)
    train_data = Folder(options.data / "train", flip=True)
    sampler: DistributedSampler[tuple[torch.Tensor, int]] = DistributedSampler(train_data)
    train_loader = DataLoader(
        train_data, options.batch_size, sampler=sampler, num_workers=options.workers
    )
    val_loader = DataLoader(Folder(options.data / "val", flip=False), options.batch_size)

    for epoch in range(first_epoch, options.epochs):
        sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, options)
        accuracy = validate(val_loader, model)
        schedule.step()
        is_best, best = accuracy >= best, max(accuracy, best)
        if rank == 0:
            save(options, epoch, model, optimizer, schedule, best, is_best=is_best)
    dist.destroy_process_group()


def train(loader, model, criterion, optimizer, epoch, options) -> None:  # type: ignore[no-untyped-def]
    model.train()
    end = time.time()
    for number, (images, target) in enumerate(loader):
        waited = time.time() - end
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % options.print_freq == 0 and dist.get_rank() == 0:
            print(f"epoch {epoch} [{number}/{len(loader)}] data {waited:.3f} s loss {loss:.4f}")
        end = time.time()


@torch.no_grad()
def validate(loader, model) -> float:  # type: ignore[no-untyped-def]
    """Top-1 accuracy over all workers."""
    model.eval()
    right = torch.zeros(2)
    for images, target in loader:
        right += torch.tensor([(model(images).argmax(1) == target).sum(), len(target)])
    dist.all_reduce(right)
    return float(right[0] / right[1])


def save(options, epoch, model, optimizer, schedule, best, *, is_best) -> None:  # type: ignore[no-untyped-def]
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "checkpoint.pth.tar"
    state = {
        "epoch": epoch + 1,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "best": best,
    }
    torch.save(state, path)
    if is_best:
        shutil.copyfile(path, options.output / "model_best.pth.tar")


def resume(options, model, optimizer, schedule) -> tuple[int, float]:  # type: ignore[no-untyped-def]
    if options.resume is None:
        return 0, 0.0
    state = torch.load(options.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    return int(state["epoch"]), float(state["best"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("-b", "--batch-size", type=int, default=8)
    parser.add_argument("-j", "--workers", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("-p", "--print-freq", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("checkpoints"))
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
