"""A small GPT in one file: batches come straight from a memory-mapped token file, no DataLoader.

torchrun --nproc-per-node 2 examples/nanogpt_style.py --data tokens.bin --max-iters 20
stash profile examples/nanogpt_style.py --nproc-per-node 2 -- --data tokens.bin

With --feed its batches pass through `stash.feed`, so that Stash can switch them, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 256


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        for block in self.blocks:
            x = block(x, mask)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def batches(path: Path, size: int, length: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random places of the file; it is mapped anew each time, or memory would only ever grow."""
    while True:
        data = np.memmap(path, dtype=np.uint16, mode="r")
        starts = torch.randint(len(data) - length - 1, (size,))
        cuts = [torch.from_numpy(data[s : s + length + 1].astype(np.int64)) for s in starts]
        whole = torch.stack(cuts)
        yield whole[:, :-1], whole[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("tokens.bin"))
    parser.add_argument("--max-iters", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--feed", action="store_true", help="pass batches through stash.feed")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    if dist.get_rank() == 0 and not options.data.exists():
        tokens = np.random.default_rng(0).integers(0, VOCABULARY, 1 << 18, dtype=np.uint16)
        tokens.tofile(options.data)
    dist.barrier()
    torch.manual_seed(1337 + dist.get_rank())
    model = DistributedDataParallel(Gpt(64, 2, options.block_size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))
    source = batches(options.data, options.batch_size, options.block_size)
    if options.feed:
        import stash

        source = stash.feed(source)
    x, y = next(source)
    for iteration in range(options.max_iters):
        loss = model(x, y)
        x, y = next(source)  # fetched ahead, while an accelerator would compute
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if iteration % 10 == 0 and dist.get_rank() == 0:
            print(f"iter {iteration}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
