"""What training on a GPU through the package costs, beside plain PyTorch in the same process: bench_cuda.py TIERD [--json FILE]
[--quick] [NAME…]. ./run bench --gpu runs it."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from support import Arguments, daemon, gpt2, in_turns
from torch import nn

import tierd.torch

# Whether units are in memory of the GPU that the daemon owns, else they are copied.
NAMES = {"gpu_torch_ratio": True, "gpu_torch_copies_ratio": False}
LIMIT = 1.10
PAIRS = 9
STEPS = 3  # one after the other, before it is the other side's turn


def main() -> int:
    arguments = Arguments(list(NAMES))
    if not torch.cuda.is_available():
        reason = f"PyTorch {torch.__version__} finds no GPU"
        arguments.write([dict(name=name, skipped=reason) for name in arguments.wanted])
        return 77
    results = []
    for name in arguments.wanted:
        with daemon(arguments.tierd, 6 << 30) as node:
            results.append(measured(name, node.socket, arguments.is_quick))
    return arguments.write(results)


def measured(name: str, socket: str, is_quick: bool) -> dict[str, Any]:
    """Forward and backward of GPT-2 in bf16, its parameters the daemon's, over a model that is PyTorch's."""
    text = torch.randint(0, 256, (2, 256) if is_quick else (16, 1024), device="cuda")
    plain, model = plain_side(gpt2(is_quick), text), gpt2(is_quick)
    try:
        ours = tierd_side(model, text, socket, gpu_tier=NAMES[name])
    except tierd.torch.Error as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV):
            raise
        return dict(name=name, skipped=str(error.strerror))
    for side in (plain, ours):
        side()
    value, spread = in_turns(
        1 if is_quick else PAIRS,
        ours,
        plain,
        lambda mine, theirs: f"forward and backward: tierd {mine * 1e3:.1f} ms, PyTorch {theirs * 1e3:.1f} ms",
    )
    tierd.torch.close(model)
    return dict(name=name, value=value, unit="ratio", bound="most", limit=LIMIT, spread=spread)


def timed(model: nn.Module, text: torch.Tensor, step: Callable[[], None]) -> float:
    """Seconds of a forward and a backward, with all that is copied for them; steps do not count."""
    passed = 0.0
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        model(input_ids=text, labels=text).loss.backward()
        torch.cuda.synchronize()
        passed += time.perf_counter() - start
        step()
    return passed / STEPS


def plain_side(model: nn.Module, text: torch.Tensor) -> Callable[[], float]:
    model.to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return lambda: timed(model, text, step)


def tierd_side(model: nn.Module, text: torch.Tensor, socket: str, *, gpu_tier: bool) -> Callable[[], float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tierd.torch.initialize(model, optimizer, job="bench-cuda", socket=socket, device="cuda", gpu_tier=gpu_tier)

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()
        # It is the processors' work, and not measured.
        tierd.torch.job_of(model).finish()

    return lambda: timed(model, text, step)


if __name__ == "__main__":
    sys.exit(main())
