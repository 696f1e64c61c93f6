"""torch.distributed.checkpoint saves and loads what is on tierd, without a process group and with one."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_checkpoint
from torch.distributed.checkpoint.state_dict_saver import save as save_checkpoint
from torch.optim import Optimizer

import tierd.torch
from compare import assert_same_bits
from conftest import PATIENCE, Daemon
from training import initialize, update

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


def make(seed: int) -> tuple[nn.Module, Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)) for _ in range(2)), nn.Linear(16, 4))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: Optimizer) -> None:
    update(model(torch.linspace(-1, 1, 64).view(4, 16)).square().sum(), optimizer)


def save(model: nn.Module, optimizer: Optimizer, folder: Path) -> None:
    values, state = get_state_dict(model, optimizer)
    save_checkpoint({"model": values, "optimizer": state}, checkpoint_id=folder)


def load(model: nn.Module, optimizer: Optimizer, folder: Path) -> None:
    values, state = get_state_dict(model, optimizer)
    load_checkpoint({"model": values, "optimizer": state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=values, optim_state_dict=state)


def flat(optimizer: Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": value for number, own in state.items() for name, value in own.items()}


def in_a_group(rank: int, folder: Path) -> None:
    distributed.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=2)
    model, optimizer = make(1 + rank)
    initialize(model, optimizer, "group", rank=rank, world_size=2)
    train(model, optimizer)
    values, state = model.state_dict(), flat(optimizer)
    save(model, optimizer, folder / "of-group")
    train(model, optimizer)
    load(model, optimizer, folder / "of-group")
    assert_same_bits(model, values)
    assert_same_bits(flat(optimizer), state)
    tierd.torch.close(model)
    distributed.destroy_process_group()


def test_ranks_of_a_group_save_and_load(daemon: Daemon, tmp_path: Path) -> None:
    # Forked, as each would import torch for seconds; before this process is a rank of anything.
    context: Any = multiprocessing.get_context("fork")
    ranks = [context.Process(target=in_a_group, args=(rank, tmp_path)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(PATIENCE)
    assert [rank.exitcode for rank in ranks] == [0, 0]


def test_a_job_loads_what_another_one_and_a_plain_model_have_saved(daemon: Daemon, tmp_path: Path) -> None:
    model, optimizer = make(1)
    initialize(model, optimizer, "first")
    train(model, optimizer)
    save(model, optimizer, tmp_path / "first")

    plain, plain_optimizer = make(2)
    load(plain, plain_optimizer, tmp_path / "first")
    assert_same_bits(plain, model)
    assert_same_bits(flat(plain_optimizer), flat(optimizer))
    train(plain, plain_optimizer)
    save(plain, plain_optimizer, tmp_path / "plain")

    load(model, optimizer, tmp_path / "plain")
    assert_same_bits(model, plain)
    assert_same_bits(flat(optimizer), flat(plain_optimizer))


def test_parameters_themselves_are_saved_one_after_the_other(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = make(1)
    initialize(model, optimizer, "streamed")
    train(model, optimizer)
    membership = tierd.torch.job_of(model).membership
    gather, leases = membership.capsules, []

    def watch(unit: int, name: str) -> Any:
        leases.append(membership.core.leases())
        return gather(unit, name)

    monkeypatch.setattr(membership, "capsules", watch)
    state = {"model": model.state_dict(keep_vars=True)}
    save_checkpoint(state, storage_writer=FileSystemWriter(tmp_path / "streamed", single_file_per_rank=False))
    monkeypatch.undo()
    assert len(leases) >= 5
    assert max(leases) <= 1
    train(model, optimizer)
    plain, _ = make(2)
    values = {"model": plain.state_dict()}
    load_checkpoint(values, checkpoint_id=tmp_path / "streamed")
    with pytest.raises(AssertionError):
        assert_same_bits(plain, model)
    model.load_state_dict(values["model"])
    assert_same_bits(plain, model)
