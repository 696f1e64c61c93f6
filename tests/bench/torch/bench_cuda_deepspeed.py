"""Training steps of GPT-2 on a GPU, optimizer included, its state in host memory, beside DeepSpeed's ZeRO-Offload in the same process, if
DeepSpeed is there: bench_cuda_deepspeed.py TIERD [--json FILE] [--quick] [NAME…]. ./run bench --gpu runs it."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from support import Arguments, daemon, gpt2, in_turns, wait_for_last_step
from torch import nn

import tierd.torch

NAME = "gpu_vs_deepspeed"
LIMIT = 1.5
PAIRS = 9
STEPS = 3
RATE = 1e-4


def main() -> int:
    arguments = Arguments([NAME])
    lack = missing()
    if lack:
        arguments.write([dict(name=NAME, skipped=lack)])
        return 77
    if arguments.wanted:
        with daemon(arguments.tierd, 8 << 30) as node, tempfile.TemporaryDirectory() as folder:
            arguments.write([measured(node.socket, folder, arguments.is_quick)])
    return 0


def missing() -> str:
    """Why there is nothing to compare."""
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} finds no GPU"
    try:
        importlib.import_module("deepspeed")
    except ImportError as error:
        return f"there is no DeepSpeed: {error}"
    return ""


def measured(socket: str, folder: str, is_quick: bool) -> dict[str, Any]:
    text = torch.randint(0, 256, (2, 256) if is_quick else (8, 1024), device="cuda")
    try:
        theirs = deepspeed_side(gpt2(is_quick), text, folder)
        theirs()
    except Exception as error:  # noqa: BLE001  its operators may lack whatever they are compiled with
        return dict(name=NAME, skipped=f"DeepSpeed does not work here: {error}")
    ours = tierd_side(gpt2(is_quick), text, socket)
    ours()
    value, spread = in_turns(
        1 if is_quick else PAIRS,
        ours,
        theirs,
        lambda mine, other: f"{NAME}: tierd {mine:.2f}, DeepSpeed {other:.2f} steps a second",
    )
    return dict(name=NAME, value=value, unit="ratio", bound="least", limit=LIMIT, spread=spread)


def rate(step: Callable[[], None], finish: Callable[[], None]) -> float:
    """Steps a second, the last one's update included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    finish()
    torch.cuda.synchronize()
    return STEPS / (time.perf_counter() - start)


def tierd_side(model: nn.Module, text: torch.Tensor, socket: str) -> Callable[[], float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    tierd.torch.initialize(model, optimizer, job="deepspeed", socket=socket, device="cuda", early_updates=True)

    def step() -> None:
        model(input_ids=text, labels=text).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return lambda: rate(step, lambda: wait_for_last_step(model, is_durable=False))


def deepspeed_side(model: nn.Module, text: torch.Tensor, folder: str) -> Callable[[], float]:
    """ZeRO-2 with the optimizer's state, its update and the gradients' sums in host memory: what its authors call ZeRO-Offload."""
    deepspeed = importlib.import_module("deepspeed")
    os.environ.setdefault("LOCAL_RANK", "0")
    torch.distributed.init_process_group("nccl", f"file://{folder}/rendezvous", rank=0, world_size=1)
    engine = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": text.shape[0],
            "steps_per_print": 1 << 30,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": RATE, "weight_decay": 0.01}},
            "zero_optimization": {
                "stage": 2,
                "overlap_comm": True,
                "contiguous_gradients": True,
                "offload_optimizer": {"device": "cpu", "pin_memory": True},
            },
        },
    )[0]

    def step() -> None:
        engine.backward(engine(input_ids=text, labels=text).loss)
        engine.step()

    return lambda: rate(step, lambda: None)


if __name__ == "__main__":
    sys.exit(main())
