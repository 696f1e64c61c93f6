#!/usr/bin/env python3
"""Trains a small GPT on the bytes of files by transformers' Trainer, with its state in tierd. Killed and started again, it
goes on.

python trainer.py README.md docs/*.md
torchrun --nproc-per-node 2 --max-restarts 3 trainer.py README.md docs/*.md
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

from tierd.transformers import Trainer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Trains a small GPT by transformers' Trainer, with its state in tierd."
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="text to train on")
    parser.add_argument("--job", default="trainer", help="its name; one that exists is gone on with (%(default)s)")
    parser.add_argument("--nvme", metavar="FOLDER:SIZE", help="where a private daemon, if one is started, keeps state")
    parser.add_argument("--output", default="trainer-output", metavar="FOLDER", help="for checkpoints (%(default)s)")
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="(%(default)s)")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="sequences of a rank's step (%(default)s)")
    parser.add_argument("--context", type=int, default=256, metavar="N", help="bytes of a sequence (%(default)s)")
    parser.add_argument("--layers", type=int, default=8, metavar="N", help="(%(default)s)")
    parser.add_argument("--width", type=int, default=256, metavar="N", help="a multiple of 64 (%(default)s)")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="(%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, metavar="X", help="after warm-up (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(%(default)s)")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS", help="(%(default)s)")
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS", help="and evaluate (%(default)s)")
    return parser.parse_args()


def sequences_of(options: argparse.Namespace) -> list[dict[str, torch.Tensor]]:
    text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in options.files)), dtype=torch.uint8)
    rows = text[: len(text) // options.context * options.context].view(-1, options.context).long()
    return [{"input_ids": row, "labels": row} for row in rows]


def make_trainer(options: argparse.Namespace) -> Trainer:
    sequences = sequences_of(options)
    kept = max(1, len(sequences) // 10)  # to evaluate with
    if len(sequences) <= kept:
        raise SystemExit(f"the text has less than two sequences of {options.context} bytes: name more files")
    torch.manual_seed(options.seed)
    sizes = {"n_positions": options.context, "n_layer": options.layers, "n_embd": options.width}
    config = GPT2Config(vocab_size=256, n_head=options.width // 64, bos_token_id=0, eos_token_id=0, **sizes)
    settings: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": options.save_every, "report_to": []}
    return Trainer(
        GPT2LMHeadModel(config).to(getattr(torch, options.dtype)),
        TrainingArguments(
            options.output,
            use_cpu=True,
            seed=options.seed,
            max_steps=options.steps,
            per_device_train_batch_size=options.batch,
            learning_rate=options.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=min(20, options.steps // 4),
            weight_decay=0.1,
            max_grad_norm=1.0,
            logging_steps=options.log_every,
            save_steps=options.save_every,
            save_total_limit=2,
            disable_tqdm=True,
            **settings,
        ),
        train_dataset=sequences[:-kept],
        eval_dataset=sequences[-kept:],
        job=options.job,
        job_options={"nvme": options.nvme},
    )


def main() -> None:
    options = arguments()
    trainer = make_trainer(options)
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    trainer.save_model()
    if trainer.is_world_process_zero():
        print(
            f"step {trainer.state.global_step}: loss of the evaluation {loss:.6f}, model in {options.output}",
            flush=True,
        )


if __name__ == "__main__":
    main()
