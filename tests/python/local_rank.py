"""A rank for tests whose optimizers run in the trainer: says each step, and at the end a hash of what it has trained.

`plain()` is the same without tierd.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import torch
from torch import nn

import tierd.torch as tierd
from tierd.torch.ranks import from_environment

WIDTH = 24


class Block(nn.Module):
    """A matrix that is not square, with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(torch.relu(self.up(x)))
        return out


def make_model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(*[Block() for _ in range(3)], nn.Linear(WIDTH, 7))


class Own(torch.optim.RMSprop):
    """A class of which nobody knows what it looks at."""


def make_optimizers(model: nn.Module, kind: str) -> list[torch.optim.Optimizer]:
    """One for the matrices of blocks, as language models are trained today, and one for the rest; or one for all."""
    if kind == "own":
        return [Own(model.parameters(), lr=1e-3, momentum=0.9)]
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and not name.startswith("3")]
    others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    matrix_optimizer: torch.optim.Optimizer
    if hasattr(torch.optim, "Muon"):
        matrix_optimizer = torch.optim.Muon(matrices, lr=1e-2)
    else:
        matrix_optimizer = torch.optim.NAdam(matrices, lr=1e-3)
    return [matrix_optimizer, torch.optim.RMSprop(others, lr=1e-3, momentum=0.9)]


def losses(model: nn.Module, step: int, world_size: int) -> Iterator[torch.Tensor]:
    """The loss of each rank's part of a step's batch."""
    generator = torch.Generator().manual_seed(step)
    inputs, targets = torch.randn(8, WIDTH, generator=generator), torch.randint(7, (8,), generator=generator)
    for rank in range(world_size):
        yield nn.functional.cross_entropy(model(inputs[rank::world_size]), targets[rank::world_size])


def hash_of(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> str:
    """Of all values, and of all that optimizers keep."""
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        found.update(name.encode() + value.numpy().tobytes())
    for optimizer in optimizers:
        for number, state in sorted(optimizer.state_dict()["state"].items()):
            for key, value in sorted(state.items()):
                found.update(f"{number} {key}".encode() + value.numpy().tobytes())
    return found.hexdigest()


def plain(ranks: list[int], kind: str) -> str:
    """What plain PyTorch makes of steps of so many ranks, with the mean of their gradients."""
    model = make_model()
    optimizers = make_optimizers(model, kind)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in optimizers]
    for step, world_size in enumerate(ranks):
        for loss in losses(model, step, world_size):
            loss.backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(1 / world_size)
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    return hash_of(model, optimizers)


def train(
    job: str, kind: str, stage: int, steps: int, rank: int, world_size: int, before: Callable[[int], object] = print
) -> str:
    """The hash of what a rank ends with; calls back before each step."""
    model = make_model()
    optimizers = make_optimizers(model, kind)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in optimizers]
    tierd.initialize(model, optimizers, job=job, stage=stage, rank=rank, world_size=world_size)
    print("from", tierd.job_of().membership.step, flush=True)
    for step in tierd.resumable(range(steps), *schedulers):
        before(step)
        list(losses(model, step, world_size))[rank].backward()
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    tierd.job_of().finish()
    found = hash_of(model, optimizers)
    tierd.close()
    return found


def main(job: str, kind: str, stage: int, steps: int) -> None:
    rank, world_size = from_environment()
    print(train(job, kind, stage, steps, rank, world_size, lambda step: print("step", step, flush=True)), flush=True)
