"""A trainer for tests that interrupt it: prints the step that it starts at, and at the end a hash of all that it has trained.

    resumed.py JOB PASSES

BatchNorm, dropout, a scheduler and a loader that shuffles make each of them a part of the result.
"""

from __future__ import annotations

import hashlib
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tierd.torch as tierd


def block() -> nn.Module:
    """What has all of it."""
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Dropout(0.1), nn.GELU())


def main(job: str, passes: int) -> None:
    torch.manual_seed(1)
    model: nn.Module = nn.Sequential(*[block() for _ in range(4)], nn.Linear(64, 10))
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    data = TensorDataset(torch.randn(160, 64), torch.randint(0, 10, (160,)))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model, optimizer = tierd.initialize(model, optimizer, job=job)
    print("from", tierd.job_of().membership.step, flush=True)
    for _ in range(passes):
        for inputs, targets in tierd.resumable(loader, scheduler):
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    tierd.job_of().finish()
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        found.update(name.encode() + value.numpy().tobytes())
    step = tierd.job_of().core.state()["step"]
    print("done", step, optimizer.param_groups[0]["lr"], found.hexdigest(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
