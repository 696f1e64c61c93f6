"""Several ranks, as torchrun starts them: each stage gives the bits of the others, on all ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import PATIENCE, Daemon

SCRIPT = Path(__file__).with_name("rank.py")


def train(job: str, stage: int, world_size: int) -> set[str]:
    """The hashes that the ranks end with."""
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), job, str(stage)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world_size)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    said = [rank.communicate(timeout=PATIENCE) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(errors for _, errors in said)
    return {output.split()[-1] for output, _ in said}


@pytest.mark.parametrize("world_size", [2, 4])
def test_each_stage_gives_the_same_bits_on_all_ranks(world_size: int, daemon: Daemon) -> None:
    # With several micro-batches 0 and 1 sum in another order than 2 and 3.
    results = [train(f"ranks-{world_size}-stage-{stage}", stage, world_size) for stage in range(4)]
    assert all(len(result) == 1 for result in results)
    assert results[0] == results[1]
    assert results[2] == results[3]


def test_ranks_with_different_models_are_told_the_first_difference(daemon: Daemon) -> None:
    script = (
        "import os, torch, tierd.torch\n"
        "width = 4 + int(os.environ['RANK'])\n"
        "model = torch.nn.Sequential(torch.nn.Linear(width, 2))\n"
        "tierd.torch.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job='different')\n"
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    while all(rank.poll() is None for rank in ranks):
        time.sleep(0.02)
    for rank in ranks:
        rank.kill()
    errors = "".join(rank.communicate()[1] for rank in ranks)
    assert "0.weight" in errors, errors


def test_a_job_goes_on_with_another_number_of_ranks(daemon: Daemon) -> None:
    assert len(train("other-ranks", 3, 2)) == 1
    assert len(train("other-ranks", 3, 1)) == 1
