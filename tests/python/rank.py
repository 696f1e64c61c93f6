"""A rank for tests: trains a small model with its part of each batch, and prints losses and a hash of the result.

RANK=… WORLD_SIZE=… rank.py JOB STAGE
"""

from __future__ import annotations

import hashlib
import os
import sys

import torch
from torch import nn

import tierd.torch as tierd


def main(job: str, stage: int) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(rank)  # the values are those of rank 0
    blocks = [nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3)]
    model: nn.Module = nn.Sequential(nn.Embedding(40, 32), *blocks, nn.Linear(32, 40))
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = tierd.initialize(model, optimizer, job=job, stage=stage, max_grad_norm=1.0)
    for step in range(10):
        batch = torch.randint(0, 40, (8, 6), generator=torch.Generator().manual_seed(step))
        part = batch[rank::world_size]
        for half in part.split(max(1, len(part) // 2)):
            nn.functional.cross_entropy(model(half).flatten(0, 1), half.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    tierd.job_of().finish()
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        found.update(name.encode() + value.numpy().tobytes())
    tierd.close(model)
    print(found.hexdigest(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
