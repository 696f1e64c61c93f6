"""A step of GPT-2 whose state is on NVMe, in half the memory that it takes: bench_nvme.py TIERD [--json FILE] [--quick]
[NAME…]. run_bench runs it, in an environment that ./run makes."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import torch
from support import Arguments, Daemon, Fio, count_of, daemon, fio_is_installed, gpt2, wait_for_last_step
from torch import nn

import tierd.torch

NAME = "torch_nvme_ratio"
LIMIT = 1.2
ROUNDS = 5
STEPS = 6  # one after the other: of the last one nothing overlaps with another
STATE_BYTES = 16  # of each parameter: bf16 parameter and gradient, fp32 master and two moments
LEAST_BUDGET = 64 << 20  # of the small model


def main() -> int:
    arguments = Arguments([NAME])
    results: list[dict[str, Any]] = []
    if not fio_is_installed():
        results = [dict(name=NAME, skipped="fio is not installed: apt-get install fio")]
    elif arguments.wanted:
        plain, model = gpt2(arguments.is_quick), gpt2(arguments.is_quick)
        state = count_of(model) * STATE_BYTES
        with daemon(arguments.tierd, max(state // 2, LEAST_BUDGET), 2 * state + (256 << 20)) as node:
            results = [measured(node, plain, model, arguments.is_quick)]
    return arguments.write(results)


def measured(node: Daemon, plain: nn.Module, model: nn.Module, is_quick: bool) -> dict[str, Any]:
    """Steps over what the longer takes of computing alone and of moving alone, in turns."""
    text = torch.randint(0, 256, (4, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tierd.torch.initialize(model, optimizer, job="bench-nvme", socket=node.socket, early_updates=True)
    fio = Fio(node.disk, is_quick)
    computed(plain, text)
    trained(node, model, optimizer, text)
    ratios, selves = [], []
    for _ in range(1 if is_quick else ROUNDS):
        before, (seconds, moved), after = (
            computed(plain, text),
            trained(node, model, optimizer, text),
            computed(plain, text),
        )
        rate = fio.rate(0.1 if is_quick else 1)
        moving = moved / rate
        ratios.append(seconds / max((before + after) / 2, moving))
        selves.append(max(before, after) / min(before, after))
        print(
            f"nvme: step {seconds * 1e3:.0f} ms, PyTorch's forward and backward {(before + after) / 2 * 1e3:.0f} ms, "
            f"{moved / 1e6:.0f} MB take fio {moving * 1e3:.0f} ms at {rate / 1e6:.0f} MB/s",
            flush=True,
        )
    value, spread = statistics.median(ratios), statistics.median(selves)
    return dict(name=NAME, value=value, unit="ratio", bound="most", limit=LIMIT, spread=spread)


def computed(model: nn.Module, text: torch.Tensor) -> float:
    """Seconds of plain PyTorch's forward and backward pass; before the other side's turn, and after it."""
    start = time.perf_counter()
    for _ in range(STEPS // 2):
        model(input_ids=text, labels=text).loss.backward()
        model.zero_grad()
    return (time.perf_counter() - start) / (STEPS // 2)


def trained(
    node: Daemon, model: nn.Module, optimizer: torch.optim.Optimizer, text: torch.Tensor
) -> tuple[float, float]:
    """Seconds of a step, and bytes that the daemon moved for it; the last one is applied when it ends, but need not be durable."""
    start, before = time.perf_counter(), node.moved_bytes()
    for _ in range(STEPS):
        model(input_ids=text, labels=text).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    wait_for_last_step(model, is_durable=False)
    seconds, moved = time.perf_counter() - start, node.moved_bytes() - before
    wait_for_last_step(model, is_durable=True)
    return seconds / STEPS, moved / STEPS


sys.exit(main())
