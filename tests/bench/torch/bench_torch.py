"""What training through the package costs, beside plain PyTorch in the same process: bench_torch.py TIERD [--json FILE]
[--quick] [NAME…]. run_bench runs it, in an environment that ./run makes."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from support import Arguments, daemon, gpt2, in_turns
from torch import nn

import tierd.torch

PAIRS = 9
STEPS = 3  # one after the other, before it is the other side's turn
CALLS = 2000
LIMITS = {"torch_step_ratio": 1.10, "torch_call_us": 25.0, "torch_reader_ratio": 1.3}


def main() -> int:
    measures = {"torch_step_ratio": step_ratio, "torch_call_us": call_us, "torch_reader_ratio": reader_ratio}
    arguments = Arguments(measures)
    results: list[dict[str, Any]] = []
    if arguments.wanted:
        with daemon(arguments.tierd, 6 << 30) as node:
            results = [measures[name](node.socket, arguments.is_quick) for name in arguments.wanted]
    return arguments.write(results)


def result(name: str, value: float, unit: str, spread: float | None = None) -> dict[str, Any]:
    return dict(name=name, value=value, unit=unit, bound="most", limit=LIMITS[name], spread=spread)


# ---- Steps


def step_ratio(socket: str, is_quick: bool) -> dict[str, Any]:
    """A step of GPT-2, in bf16 with fp32 masters, over plain PyTorch's; in turns, by pairs."""
    text = torch.randint(0, 256, (4, 256))
    plain, ours = plain_side(gpt2(is_quick), text), tierd_side(gpt2(is_quick), text, socket)
    for side in (plain, ours):
        timed(side)
    value, spread = in_turns(
        1 if is_quick else PAIRS,
        lambda: timed(ours),
        lambda: timed(plain),
        lambda mine, theirs: f"step: tierd {mine * 1e3:.0f} ms, PyTorch {theirs * 1e3:.0f} ms",
    )
    return result("torch_step_ratio", value, "ratio", spread)


def timed(side: Callable[[], None]) -> float:
    start = time.perf_counter()
    side()
    return (time.perf_counter() - start) / STEPS


def plain_side(model: nn.Module, text: torch.Tensor) -> Callable[[], None]:
    parameters: list[torch.Tensor] = list(model.parameters())
    masters: list[torch.Tensor] = [nn.Parameter(parameter.detach().float()) for parameter in parameters]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)

    def run() -> None:
        for _ in range(STEPS):
            model(input_ids=text, labels=text).loss.backward()
            for parameter, master in zip(parameters, masters, strict=True):
                master.grad = None if parameter.grad is None else parameter.grad.float()
                parameter.grad = None
            optimizer.step()
            with torch.no_grad():
                torch._foreach_copy_(parameters, masters)

    return run


def tierd_side(model: nn.Module, text: torch.Tensor, socket: str) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tierd.torch.initialize(model, optimizer, job="bench-step", socket=socket)

    def run() -> None:
        for _ in range(STEPS):
            model(input_ids=text, labels=text).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        # The other side must have the processors to itself.
        tierd.torch.job_of(model).finish()

    return run


# ---- Calls


class Block(nn.Module):
    """Computes nothing, so that what is left is the hooks' own."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(64, 64, dtype=torch.bfloat16) for _ in range(12))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value


def call_us(socket: str, is_quick: bool) -> dict[str, Any]:
    """The call of a module whose unit is resident, less that of one without hooks."""
    bare, model = Block(), nn.Sequential(Block(), Block())
    optimizer = torch.optim.AdamW(model.parameters())
    tierd.torch.initialize(model, optimizer, job="bench-call", socket=socket, units=["Block"])
    rounds = [(called(model[0]), called(bare)) for _ in range(1 if is_quick else PAIRS)]
    value = statistics.median(ours - theirs for ours, theirs in rounds)
    return result("torch_call_us", value * 1e6, "us")


def called(module: nn.Module) -> float:
    value = torch.zeros(1)
    start = time.perf_counter()
    for _ in range(CALLS):
        module(value)
    return (time.perf_counter() - start) / CALLS


# ---- Readers


class Weights(nn.Module):
    """120 matrices in 24 blocks, 240 MiB; so little is computed with them that a step is soon over."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(*(nn.Linear(width, width) for _ in range(5))) for _ in range(24))
        self.to(torch.bfloat16)

    def forward(self) -> torch.Tensor:
        return torch.stack([parameter.sum() for parameter in self.parameters()]).sum()


def reader_ratio(socket: str, is_quick: bool) -> dict[str, Any]:
    """A follower's refresh of all parameters after a step, over copying as many bytes in this process, before and after it."""
    trained, followed = (Weights(64 if is_quick else 1024) for _ in range(2))
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    targets = [parameter.detach() for parameter in followed.parameters()]
    sources = [target.clone() for target in targets]
    tierd.torch.initialize(trained, optimizer, job="bench-reader", socket=socket)
    follower = tierd.torch.follow(followed, job="bench-reader", socket=socket)
    ratios, selves = [], []
    # Of the first one pages are new.
    for pair in range(2 if is_quick else PAIRS + 1):
        trained().backward()
        optimizer.step()
        tierd.torch.job_of(trained).finish()
        before, ours, after = copied(targets, sources), refreshed(follower, pair + 1), copied(targets, sources)
        ratios.append(2 * ours / (before + after))
        selves.append(max(before, after) / min(before, after))
        print(f"reader: refresh {ours * 1e3:.1f} ms, copy {(before + after) / 2 * 1e3:.1f} ms", flush=True)
    return result("torch_reader_ratio", statistics.median(ratios[1:]), "ratio", statistics.median(selves[1:]))


def copied(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> float:
    """By memcpy(): torch's own copies are many times slower where threads have to wait for processors."""
    start = time.perf_counter()
    for target, source in zip(targets, sources, strict=True):
        ctypes.memmove(target.data_ptr(), source.data_ptr(), target.nbytes)
    return time.perf_counter() - start


def refreshed(follower: tierd.torch.Follower, step: int) -> float:
    start = time.perf_counter()
    found = follower.refresh()
    passed = time.perf_counter() - start
    assert found == step, (found, step)
    return passed


sys.exit(main())
