#!/usr/bin/env python3
"""Trains a small GPT on the bytes of files, with its state in tierd. Killed and started again, it goes on.

python pretrain.py README.md docs/*.md
torchrun --nproc-per-node 2 pretrain.py README.md docs/*.md
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import tierd.torch as tierd
from tierd.torch.ranks import from_environment


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a small GPT on the bytes of files, with its state in tierd.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="text to train on")
    parser.add_argument("--job", default="pretrain", help="its name; one that exists is gone on with (%(default)s)")
    parser.add_argument("--nvme", metavar="FOLDER:SIZE", help="where a private daemon, if one is started, keeps state")
    parser.add_argument("--passes", type=int, default=1, metavar="N", help="over the text (%(default)s)")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="sequences of a rank's step (%(default)s)")
    parser.add_argument("--context", type=int, default=256, metavar="N", help="bytes of a sequence (%(default)s)")
    parser.add_argument("--layers", type=int, default=8, metavar="N", help="(%(default)s)")
    parser.add_argument("--width", type=int, default=256, metavar="N", help="a multiple of 64 (%(default)s)")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="(%(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, or a GPU: cuda (%(default)s)")
    parser.add_argument(
        "--gpu-budget", default="0", metavar="SIZE", help="of its memory, for units; 0: as there is room"
    )
    parser.add_argument("--learning-rate", type=float, default=1e-3, metavar="X", help="after warm-up (%(default)s)")
    parser.add_argument("--warmup", type=int, default=20, metavar="STEPS", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(%(default)s)")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS", help="(%(default)s)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="the model's state_dict, when training has ended")
    return parser.parse_args()


class GPT(nn.Module):
    """What is trained where transformers is not installed."""

    def __init__(self, context: int, layers: int, width: int):
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.positions = nn.Embedding(context, width)
        block = nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        values = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, values.device, values.dtype)
        logits: Tensor = self.head(self.blocks(values, mask, is_causal=True))
        return logits


def make_model(options: argparse.Namespace) -> nn.Module:
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return GPT(options.context, options.layers, options.width)
    sizes = {"n_positions": options.context, "n_layer": options.layers, "n_embd": options.width}
    config = GPT2Config(vocab_size=256, n_head=options.width // 64, bos_token_id=0, eos_token_id=0, **sizes)
    model: nn.Module = GPT2LMHeadModel(config)
    return model


def sequences_of(options: argparse.Namespace, rank: int, ranks: int) -> TensorDataset:
    """This rank's part of the text, as many sequences for each rank."""
    text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in options.files)), dtype=torch.uint8)
    count = len(text) // options.context // (options.batch * ranks) * options.batch * ranks
    if count == 0:
        raise SystemExit(f"the text has {len(text)} bytes, less than one batch: name more files, or lower --batch")
    return TensorDataset(text[: count * options.context].view(count, options.context)[rank::ranks].long())


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    output = model(batch)
    logits: Tensor = getattr(output, "logits", output)
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())


def main() -> None:
    options = arguments()
    rank, ranks = from_environment()
    torch.manual_seed(options.seed + rank)  # what rank 0 makes are the job's first values
    loader = DataLoader(sequences_of(options, rank, ranks), options.batch, shuffle=True)
    model = make_model(options).to(getattr(torch, options.dtype))
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), options.learning_rate, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / options.warmup))

    where = {"nvme": options.nvme, "device": options.device, "gpu_budget": options.gpu_budget}
    model, optimizer = tierd.initialize(model, optimizer, job=options.job, max_grad_norm=1.0, **where)
    device = next(model.parameters()).device
    start, steps = time.monotonic(), 0
    for _ in range(options.passes):
        for (batch,) in tierd.resumable(loader, scheduler):
            loss = loss_of(model, batch.to(device))
            loss.backward()
            tierd.state["bytes"] = tierd.state.get("bytes", 0) + batch.numel() * ranks
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step, steps = scheduler.last_epoch, steps + 1
            if rank == 0 and step % options.log_every == 0:
                elapsed, start = time.monotonic() - start, time.monotonic()
                speed = f"{elapsed / options.log_every * 1000:.0f} ms a step, {tierd.state['bytes']:,} bytes so far"
                print(f"step {step}: loss {loss.item():.6f}, {speed}", flush=True)
    if rank == 0 and steps == 0:
        print(f"job {options.job} has taken all its steps: give it more --passes, or another --job", flush=True)
    if rank == 0 and options.save:
        torch.save(model.state_dict(), options.save)


if __name__ == "__main__":
    main()
