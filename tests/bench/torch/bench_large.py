"""The memory that training a Llama of 1.1 billion parameters takes, with its state on NVMe: bench_large.py TIERD [--json FILE]
[--quick] [NAME…]. run_bench runs it, in an environment that ./run makes. The trainer is a process of its own."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from support import MIB, Daemon, daemon, make_parser, write_results

import tierd.torch

sys.path.append(str(Path(__file__).parents[3] / "examples/demo"))
from memory import Watch, used_bytes  # type: ignore[import-not-found]

NAME = "torch_large_gib"
LIMIT = 6.0
STEPS = 3
BUDGETS = {True: 64 * MIB, False: 2560 * MIB}
# A step's values lie beside those of the one before it until it is durable; and sums of gradients.
NVME = {True: 256 * MIB, False: 30 << 30}


def main() -> int:
    parser = make_parser()
    parser.add_argument("--train", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.train:
        train(arguments.train, arguments.quick)
        return 0
    results: list[dict[str, Any]] = []
    nvme = NVME[arguments.quick]
    if arguments.names and NAME not in arguments.names:
        pass
    elif shutil.disk_usage(tempfile.gettempdir()).free < nvme + (3 << 30):
        results = [dict(name=NAME, skipped=f"it needs {(nvme >> 30) + 3} GiB of the disk")]
    else:
        with daemon(arguments.tierd, BUDGETS[arguments.quick], nvme) as node:
            results = [measured(node, arguments.quick)]
    write_results(arguments.json, results)
    return 0


def measured(node: Daemon, is_quick: bool) -> dict[str, Any]:
    """The most that trainer and daemon have at any moment, from the trainer's start until its end."""
    command = [sys.executable, __file__, "none", "--train", node.socket, *(["--quick"] if is_quick else [])]
    with subprocess.Popen(command) as trainer, Watch([node.pid, trainer.pid], used_bytes) as both:
        status = trainer.wait()
    if status:
        raise RuntimeError(f"the trainer ended with status {status}")
    print(f"large: {both.peak / (1 << 30):.2f} GiB at the most, of {both.samples} samples", flush=True)
    return dict(name=NAME, value=both.peak / (1 << 30), unit="GiB", bound="most", limit=LIMIT, spread=None)


def train(socket: str, is_quick: bool) -> None:
    """Some steps of a batch of 1 × 512, with activations checkpointed."""
    sizes: dict[str, Any] = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, vocab_size=256)
    if not is_quick:
        sizes = dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, vocab_size=32000)
    config = transformers.LlamaConfig(
        num_attention_heads=32, num_key_value_heads=4, tie_word_embeddings=False, use_cache=False, **sizes
    )
    with tierd.torch.init():
        model: Any = transformers.LlamaForCausalLM(config)
        model.to(torch.bfloat16)
    model.train().gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tierd.torch.initialize(model, optimizer, job="bench-large", socket=socket, max_grad_norm=1.0)
    text = torch.randint(0, 256, (1, 512))
    for _ in range(STEPS):
        model(input_ids=text, labels=text).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    tierd.torch.close(model)


sys.exit(main())
