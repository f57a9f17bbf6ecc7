"""A small GPT-2, made by configuration, under the Hugging Face Trainer.

torchrun --nproc-per-node 2 examples/hf_trainer.py --max-steps 10
stash profile examples/hf_trainer.py --nproc-per-node 2
"""

from __future__ import annotations

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCABULARY = 128


class RandomTokens(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, samples: int, length: int) -> None:
        chance = torch.Generator().manual_seed(0)
        self.ids = torch.randint(0, VOCABULARY, (samples, length), generator=chance)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-steps", type=int, default=100_000)
    parser.add_argument("--output", default="hf-output")
    options = parser.parse_args()
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=2, use_cache=False
    )
    arguments = TrainingArguments(
        output_dir=options.output,
        max_steps=options.max_steps,
        per_device_train_batch_size=4,
        dataloader_num_workers=1,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=RandomTokens(256, 32))
    result = trainer.train()
    if trainer.is_world_process_zero():
        print(f"{result.global_step} steps, loss {result.training_loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
