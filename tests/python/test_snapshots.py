"""Steps that are kept under names, and trainings that go back to them with all that belongs to a step."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import tierd
import tierd.torch
from compare import assert_same_bits
from conftest import PATIENCE, Daemon
from tierd.control import ask
from training import initialize, update

DATA = torch.randn(6, 4, 8, generator=torch.Generator().manual_seed(2))


def make(dropout: float = 0.1) -> tuple[nn.Module, torch.optim.Optimizer]:
    """What has moments, buffers and random numbers."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    loss: torch.Tensor = model(batch).square().mean()
    update(loss, optimizer)
    return loss.item()


@pytest.mark.parametrize("at", [0, 8])
def test_a_loop_goes_on_from_a_snapshot_with_every_bit(job: str, at: int) -> None:
    model, optimizer = initialize(*make(), job, snapshots=1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    loader: Any = DataLoader(DATA, 1, shuffle=True)  # type: ignore[arg-type]
    state = tierd.torch.job_of().kept.state
    seen: list[tuple[Any, ...]] = []

    def train_a_pass() -> None:
        for batch in tierd.torch.resumable(loader, scheduler):
            state["count"] = state.get("count", 0) + 1
            seen.append((state["count"], step(model, optimizer, batch[0]), optimizer.param_groups[0]["lr"]))
            scheduler.step()
            if len(seen) == 8 == at:
                tierd.torch.snapshot("here")
            if len(seen) == 15:
                assert tierd.torch.rollback("here") == at

    if at == 0:
        tierd.torch.snapshot("here")
    for _ in range(3):
        train_a_pass()
    assert len(seen) == 15 + 18 - at
    assert seen[15 : 30 - at] == seen[at:15]
    # Between two passes: the next one goes through those that come again.
    assert tierd.torch.rollback("here") == at
    train_a_pass()
    assert seen[33 - at : 51 - 2 * at] == seen[15 : 33 - at]
    assert len(seen) == 33 - at + 24 - at


def test_a_plain_loop_takes_another_way_from_a_snapshot(job: str) -> None:
    model, optimizer = initialize(*make(), job, snapshots=2)
    state = tierd.torch.job_of().kept.state
    state["best"] = 1.5
    losses = [step(model, optimizer, batch) for batch in DATA[:2]]
    tierd.torch.snapshot("good")
    values, moments = model.state_dict(), optimizer.state_dict()["state"]
    losses += [step(model, optimizer, batch) for batch in DATA[2:5]]
    state["best"] = 0.5
    model(DATA[5]).sum().backward()
    assert tierd.torch.rollback("good") == 2
    assert state == {"best": 1.5}
    assert_same_bits(model, values)
    for number, kept in optimizer.state_dict()["state"].items():
        assert_same_bits(kept, moments[number])
    assert [step(model, optimizer, batch) for batch in DATA[2:5]] == losses[2:]
    tierd.torch.snapshot("other")
    assert [(one.name, one.step) for one in tierd.torch.snapshots()] == [("good", 2), ("other", 5)]
    tierd.torch.destroy_snapshot("good")
    assert [one.name for one in tierd.torch.snapshots()] == ["other"]


def test_what_cannot_be_says_why_and_changes_nothing(job: str) -> None:
    model, optimizer = initialize(*make(), job, snapshots=1)
    step(model, optimizer, DATA[0])
    tierd.torch.snapshot("one")
    values = model.state_dict()
    wrong: list[tuple[Callable[[str], object], str, int, str]] = [
        (tierd.torch.rollback, "other", errno.ENOENT, f"job {job} has no snapshot other; it has one"),
        (tierd.torch.destroy_snapshot, "other", errno.ENOENT, f"job {job} has no snapshot other; it has one"),
        (tierd.torch.snapshot, "one", errno.EEXIST, f"job {job} has a snapshot one already, of step 1"),
        (tierd.torch.snapshot, "a b", errno.EINVAL, "a b"),
    ]
    for call, name, code, text in wrong:
        with pytest.raises(tierd.Error, match=text) as error:
            call(name)
        assert error.value.errno == code
    assert_same_bits(model, values)
    step(model, optimizer, DATA[1])


@pytest.mark.parametrize("callers", [[1], [0, 1]])
def test_all_ranks_go_back_whoever_says_so(daemon: Daemon, callers: list[int]) -> None:
    job = f"ranks-{len(callers)}"

    def run(rank: int) -> list[float]:
        model, optimizer = made[rank]
        initialize(model, optimizer, job, rank=rank, world_size=2, snapshots=1)
        own = tierd.torch.job_of(model)
        losses = []
        for batch in tierd.torch.resumable(DATA, model=model):
            losses.append(step(model, optimizer, batch[rank::2]))
            if rank == 0 and len(losses) == 2:
                tierd.torch.snapshot("good", model)
            if rank in callers and len(losses) == 4 and own.membership.losses == 0:
                tierd.torch.rollback("good", model)
        own.close()
        return losses

    made = [make(dropout=0.0) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for losses in pool.map(run, range(2)):
            # Who is sent back may have closed its part of the next step, and begun another one.
            assert 8 <= len(losses) <= 10
            assert losses[-4:-2] == losses[2:4]


def test_who_has_not_heard_of_a_rollback_may_ask_for_it_too(daemon: Daemon) -> None:
    trained, was_sent_back = Barrier(2), Event()

    def run(rank: int) -> int:
        model, optimizer = made[rank]
        initialize(model, optimizer, "late", rank=rank, world_size=2, snapshots=1)
        own = tierd.torch.job_of(model)
        for batch in DATA[:3]:
            step(model, optimizer, batch[rank::2])
            own.finish()
            if rank == 0 and len(tierd.torch.snapshots(model)) == 0:
                tierd.torch.snapshot("good", model)
        trained.wait(PATIENCE)
        if rank == 0:
            ask("rollback", "late", "good", "--force", "--yes", socket=str(daemon.socket))
            was_sent_back.set()
        assert was_sent_back.wait(PATIENCE)
        stands = tierd.torch.rollback("good", model)
        own.close()
        return stands

    made = [make(dropout=0.0) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [1, 1]
