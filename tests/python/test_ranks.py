"""Several ranks: stages and tiers give one job's bits, and all ranks have them.

TIERD_MATRIX=all runs each model with each number of ranks, stage and tier; a part of that has each of them once.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import compare
import tierd.torch
from conftest import PATIENCE, job_name, tierctl
from forked import Child, start_ranks
from models import BY_NAME, CASES, Case
from tierd import _core
from tierd.torch.ranks import from_environment

STEPS = 3
WORLD_SIZES = (4, 2, 1)


@dataclass(frozen=True)
class Place:
    """A stage, and where its state lies. Parameters are on NVMe at stage 3 alone."""

    stage: int
    is_on_nvme: bool

    def __str__(self) -> str:
        return f"stage-{self.stage}-{'nvme' if self.is_on_nvme else 'host'}"

    def options(self) -> dict[str, Any]:
        """Of `initialize()`."""
        optimizer = _core.PLACE_NVME if self.is_on_nvme else _core.PLACE_HOST
        parameters = optimizer if self.stage == 3 else _core.PLACE_HOST
        return {"stage": self.stage, "parameter_placement": parameters, "optimizer_placement": optimizer}


FIRST = Place(0, False)
OTHERS = [place for stage in range(4) for is_on_nvme in (False, True) if (place := Place(stage, is_on_nvme)) != FIRST]


@dataclass(frozen=True)
class Row:
    """A model and a number of ranks, and the places that are compared with the first one."""

    case: Case
    world_size: int
    places: list[Place]

    def __str__(self) -> str:
        return f"{self.case}-{self.world_size}"


def rows() -> list[Row]:
    if os.environ.get("TIERD_MATRIX") == "all":
        return [Row(case, size, OTHERS) for case in CASES for size in WORLD_SIZES]
    # Each number of ranks has a third of the models, which share the places.
    models = [(size, CASES[i :: len(WORLD_SIZES)]) for i, size in enumerate(WORLD_SIZES)]
    return [Row(case, size, OTHERS[i :: len(cases)]) for size, cases in models for i, case in enumerate(cases)]


def train(case: Case, job: str, folder: Path, micro_batches: int, options: dict[str, Any]) -> None:
    """What a rank does: it leaves its model's state in a file, with its rank as the name."""
    rank, world_size = from_environment()
    model: nn.Module = case.make_model(seed=rank)  # the values are those of rank 0
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = tierd.torch.initialize(model, optimizer, job=job, max_grad_norm=1.0, **options)
    for step in range(STEPS * micro_batches):
        case.loss(model, case.make_batch(step * world_size + rank)).backward()
        if step % micro_batches == micro_batches - 1:
            optimizer.step()
            optimizer.zero_grad()
    torch.save(model.state_dict(), folder / str(rank))
    tierd.torch.close(model)


def trained(
    case: Case, world_size: int, job: str, folder: Path, micro_batches: int = 1, **options: Any
) -> list[dict[str, torch.Tensor]]:
    """The state of each rank's model, of which the parameters are those of all of them. The job stays."""
    folder.mkdir()
    # It is made here, too, before there are children: the first one imports its library.
    shared = [name for name, _ in case.make_model().named_parameters()]
    for rank in start_ranks(world_size, train, case, job, folder, micro_batches, options):
        rank.result()
    states: list[dict[str, torch.Tensor]] = [torch.load(folder / str(rank)) for rank in range(world_size)]
    for state in states[1:]:
        compare.assert_same_bits({name: state[name] for name in shared}, {name: states[0][name] for name in shared})
    return states


def destroy(job: str) -> None:
    tierctl("drop", "--yes", "--force", job)


@pytest.mark.parametrize("row", rows(), ids=str)
def test_each_stage_and_tier_gives_the_bits_of_stage_0_in_host_memory(row: Row, tmp_path: Path) -> None:
    expected = None
    for place in (FIRST, *row.places):
        job = job_name(f"{row}-{place}")
        found = trained(row.case, row.world_size, job, tmp_path / str(place), **place.options())
        destroy(job)
        expected = expected or found
        for ours, theirs in zip(found, expected, strict=True):
            if text := compare.difference(ours, theirs):
                pytest.fail(f"{row}, {place}: {text}")


@pytest.mark.parametrize("world_size", [2, 4])
def test_stages_sum_micro_batches_in_two_orders(world_size: int, tmp_path: Path) -> None:
    """0 and 1 sum those of a rank first, 2 and 3 those of all ranks."""
    case, results = BY_NAME["tied"], []
    for stage in range(4):
        job = f"orders-{world_size}-{stage}"
        results.append(trained(case, world_size, job, tmp_path / job, micro_batches=2, stage=stage))
        destroy(job)
    compare.assert_same_bits(results[1][0], results[0][0])
    compare.assert_same_bits(results[3][0], results[2][0])
    compare.assert_close(results[2][0], results[0][0], 1e-5)


def start_with_another_width(job: str) -> None:
    width = 4 + from_environment()[0]
    model = nn.Sequential(nn.Linear(width, 2))
    tierd.torch.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job=job)


def test_ranks_with_different_models_are_told_the_first_difference() -> None:
    ranks = start_ranks(2, start_with_another_width, "different")
    await_ends(ranks)  # no launcher ends the other one
    for rank in ranks:
        _, error = rank.communicate()
        assert "0.weight" in error, error


def await_ends(ranks: list[Child]) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(rank.returncode is None for rank in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_job_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    for world_size in (2, 1):
        trained(BY_NAME["tied"], world_size, "other-ranks", tmp_path / str(world_size))
    destroy("other-ranks")
