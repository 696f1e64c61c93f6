"""The memory that training a Llama of 1.1 billion parameters takes, with its state on NVMe: bench_large.py TIERD [--json FILE]
[--quick] [NAME…]. run_bench runs it, in an environment that ./run makes. The trainer is a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from support import MIB, Arguments, Daemon, daemon, llama

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
    arguments = Arguments([NAME], train={})
    if arguments.given.train:
        train(arguments.given.train, arguments.is_quick)
        return 0
    results: list[dict[str, Any]] = []
    nvme = NVME[arguments.is_quick]
    if not arguments.wanted:
        pass
    elif shutil.disk_usage(tempfile.gettempdir()).free < nvme + (3 << 30):
        results = [dict(name=NAME, skipped=f"it needs {(nvme >> 30) + 3} GiB of the disk")]
    else:
        with daemon(arguments.tierd, BUDGETS[arguments.is_quick], nvme) as node:
            results = [measured(node, arguments)]
    return arguments.write(results)


def measured(node: Daemon, arguments: Arguments) -> dict[str, Any]:
    """The most that trainer and daemon have at any moment, from the trainer's start until its end."""
    with (
        subprocess.Popen(arguments.again("--train", node.socket)) as trainer,
        Watch([node.pid, trainer.pid], used_bytes) as both,
    ):
        status = trainer.wait()
    if status:
        raise RuntimeError(f"the trainer ended with status {status}")
    print(f"large: {both.peak / (1 << 30):.2f} GiB at the most, of {both.samples} samples", flush=True)
    return dict(name=NAME, value=both.peak / (1 << 30), unit="GiB", bound="most", limit=LIMIT, spread=None)


def train(socket: str, is_quick: bool) -> None:
    """Some steps of a batch of 1 × 512, with activations checkpointed."""
    with tierd.torch.init():
        model: Any = llama(is_small=is_quick, tie_word_embeddings=False, use_cache=False)
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
