#!/usr/bin/env python3
"""Finetunes adapters of LoRA over a frozen causal language model, which lies in tierd. Killed and started again, it goes on.

python finetune_lora.py FOLDER README.md docs/*.md
python finetune_lora.py FOLDER README.md --checkpoints --save adapters

FOLDER is of a model that transformers loads, with its tokenizer. Without a tokenizer there bytes are tokens.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForCausalLM, AutoTokenizer

import tierd.torch as tierd
from tierd.torch.ranks import from_environment


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Finetunes adapters of LoRA over a frozen causal language model.")
    parser.add_argument("model", type=Path, metavar="FOLDER", help="of a model of transformers")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="text to finetune on")
    parser.add_argument(
        "--job", default="finetune-lora", help="its name; one that exists is gone on with (%(default)s)"
    )
    parser.add_argument("--nvme", metavar="FOLDER:SIZE", help="where a private daemon, if one is started, keeps state")
    parser.add_argument("--passes", type=int, default=1, metavar="N", help="over the text (%(default)s)")
    parser.add_argument("--batch", type=int, default=4, metavar="N", help="sequences of a rank's step (%(default)s)")
    parser.add_argument("--context", type=int, default=256, metavar="N", help="tokens of a sequence (%(default)s)")
    parser.add_argument("--lora-rank", type=int, default=8, metavar="N", help="of the adapters (%(default)s)")
    parser.add_argument("--targets", nargs="+", default="all-linear", metavar="NAME", help="layers (%(default)s)")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="(%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, metavar="X", help="(%(default)s)")
    parser.add_argument("--checkpoints", action="store_true", help="recompute activations: less memory, more time")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(%(default)s)")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS", help="(%(default)s)")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="for the adapters, when training has ended")
    return parser.parse_args()


def sequences_of(options: argparse.Namespace, rank: int, ranks: int) -> TensorDataset:
    """This rank's part of the text, as many sequences for each rank."""
    text = b"".join(path.read_bytes() for path in options.files)
    try:
        found = AutoTokenizer.from_pretrained(options.model)(text.decode())["input_ids"]
    except (OSError, ValueError):
        found = list(text)
    count = len(found) // options.context // (options.batch * ranks) * options.batch * ranks
    if count == 0:
        raise SystemExit(f"the text has {len(found)} tokens, less than one batch: name more files, or lower --batch")
    tokens = torch.tensor(found[: count * options.context])
    return TensorDataset(tokens.view(count, options.context)[rank::ranks])


def make_model(options: argparse.Namespace) -> Any:
    base: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype))
    rank = options.lora_rank
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=options.targets, task_type="CAUSAL_LM")
    model = get_peft_model(base, config)
    if options.checkpoints:
        base.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def main() -> None:
    options = arguments()
    rank, ranks = from_environment()
    torch.manual_seed(options.seed + rank)  # what rank 0 makes are the job's first values
    loader = DataLoader(sequences_of(options, rank, ranks), options.batch, shuffle=True)
    model: Any = make_model(options)
    adapters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(adapters, options.learning_rate, weight_decay=0.0)
    if rank == 0:
        trained, every = sum(item.numel() for item in adapters), sum(item.numel() for item in model.parameters())
        print(f"{trained:,} of {every:,} parameters are trained", file=sys.stderr)

    model, optimizer = tierd.initialize(model, optimizer, job=options.job, max_grad_norm=1.0, nvme=options.nvme)
    for _ in range(options.passes):
        for (batch,) in tierd.resumable(loader):
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            tierd.state["steps"] = tierd.state.get("steps", 0) + 1
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0 and tierd.state["steps"] % options.log_every == 0:
                print(
                    f"step {tierd.state['steps']}: loss {loss.item():.6f}, {batch.numel() * ranks:,} tokens", flush=True
                )
    if rank == 0 and options.save:
        model.save_pretrained(options.save)


if __name__ == "__main__":
    main()
