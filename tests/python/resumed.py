"""A trainer for tests that interrupt it: says the step that it starts at, and at the end a hash of all that it has trained.

BatchNorm, dropout, a scheduler and a loader that shuffles make each of them a part of the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tierd.torch as tierd
from tierd.torch.ranks import from_environment


def block() -> nn.Module:
    """What has all of it."""
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Dropout(0.1), nn.GELU())


def train(job: str, passes: int, before_step: Callable[[int], object]) -> str:
    """Gives and prints what it ends with: the last step, the learning rate, the hash.

    before_step: gets the number of steps that the parameters have behind them. Each rank has data of its own, and all have the first one's values.
    """
    rank = from_environment()[0]
    torch.manual_seed(rank)
    model: nn.Module = nn.Sequential(*[block() for _ in range(4)], nn.Linear(64, 10))
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    data = TensorDataset(torch.randn(160, 64), torch.randint(0, 10, (160,)))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model, optimizer = tierd.initialize(model, optimizer, job=job)
    print("from", tierd.job_of().membership.step, flush=True)
    torch.rand(1)  # as a script may that prints a sample: the first pass begins after it
    for _ in range(passes):
        for inputs, targets in tierd.resumable(loader, scheduler):
            nn.functional.cross_entropy(model(inputs), targets).backward()
            before_step(scheduler.last_epoch)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    tierd.job_of().finish()
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        found.update(name.encode() + value.numpy().tobytes())
    step = tierd.job_of().core.state()["step"]
    end = f"{step} {optimizer.param_groups[0]['lr']} {found.hexdigest()}"
    print("done", end, flush=True)
    return end
