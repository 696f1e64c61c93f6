"""A training goes on after its trainer or its daemon was killed, and ends with the bits of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import time
import warnings
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import resumed
import tierd
import tierd.torch
from conftest import Daemon
from forked import Child, start_ranks
from tierd import _core
from tierd.control import ask

PASSES = 10
STEPS = 20 * PASSES


def start(job: str, world_size: int = 1) -> list[Child]:
    """The trainers of that job."""
    return start_ranks(world_size, resumed.train, job, PASSES, lambda step: print("step", step))


def ends(trainers: list[Child]) -> list[str]:
    """What each of them ends with: step, learning rate, hash."""
    return [trainer.result().splitlines()[-1].removeprefix("done ") for trainer in trainers]


@cache
def undisturbed(world_size: int = 1) -> list[str]:
    return ends(start(f"undisturbed-{world_size}", world_size))


def await_step(trainer: Child, step: int) -> None:
    """Waits until it has come so far."""
    for line in trainer.stdout:
        if line == f"step {step}\n":
            return
    pytest.fail(trainer.communicate()[1])


def await_durable(job: str, daemon: Daemon) -> None:
    """Waits until its first values are on NVMe: before that they would be lost with the daemon."""
    while "durable_step" not in ask("jobs", job, socket=str(daemon.socket)):
        time.sleep(0.01)


def test_a_trainer_that_is_killed_goes_on_where_the_job_stands() -> None:
    for step in (30, 100):
        trainers = start("killed")
        await_step(trainers[0], step)
        trainers[0].kill()
        assert "done" not in trainers[0].communicate()[0]
    trainers = start("killed")
    # The last step that was closed may not have been decided.
    assert int(trainers[0].stdout.readline().split()[1]) >= 99
    assert ends(trainers) == undisturbed()


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_training_outlives_its_daemon(how: str, world_size: int, daemon: Daemon) -> None:
    job = f"daemon-{how}-{world_size}"
    trainers = start(job, world_size)
    for step in (0, 20, 60, 110):
        await_step(trainers[0], step)
        await_durable(job, daemon)
        if how == "killed":
            daemon.kill()
        else:
            daemon.stop()
        daemon.start()
    assert ends(trainers) == undisturbed(world_size)


def launch(job: str, kills: list[tuple[int, int]]) -> None:
    """As torchrun does, whose agent this is; in the n-th start a rank is killed when it has come to so many steps."""

    def rank() -> str:
        start, steps = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), 0
        number = int(os.environ["RANK"])

        def before_step(step: int) -> None:
            nonlocal steps
            steps += 1
            if number == 0:
                print("step", step)
            if kills[start : start + 1] == [(number, steps)]:
                os.kill(os.getpid(), signal.SIGKILL)

        end = resumed.train(job, PASSES, before_step)
        # What torchrun forks runs no functions of atexit.
        tierd.torch.close()
        return end

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        max_restarts=len(kills),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        start_method="fork",
    )
    for _, end in sorted(elastic_launch(config, rank)().items()):
        print("done", end)


def test_ranks_and_a_daemon_that_end_under_torchrun_leave_the_bits_of_undisturbed_ones(daemon: Daemon) -> None:
    generator = random.Random(os.environ.get("TIERD_SEED", "1"))
    count = int(os.environ.get("TIERD_KILLS", "4"))
    kills = [(generator.randrange(2), generator.randint(1, STEPS // count)) for _ in range(count)]
    ends_at = sorted(generator.sample(range(STEPS), 2))
    trainers = Child(launch, "torchrun", kills)
    said: list[str] = []
    left = dict(zip(ends_at, (daemon.kill, daemon.stop), strict=True))
    for line in trainers.stdout:
        said.append(line.strip())
        if left and said[-1] == f"step {next(iter(left))}":
            left.pop(next(iter(left)))()
            daemon.start()
    trainers.result()
    assert [line.removeprefix("done ") for line in said[-2:]] == undisturbed(2), (kills, ends_at)
    assert not left
    # Each start has said where it begins.
    assert sum(line.startswith("from ") for line in said) >= len(kills) + 2


def test_a_training_that_is_over_does_nothing() -> None:
    first, again = (start("over")[0].result() for _ in range(2))
    assert again.splitlines()[-1] == first.splitlines()[-1]
    assert "step " in first
    assert "step " not in again


class Counting(Dataset[torch.Tensor]):
    """Says how often it was read."""

    reads = 0

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= len(self):
            raise IndexError(index)
        self.reads += 1
        return torch.full((2,), float(index))


def small(job: str, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model of its own for what one process does."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return tierd.torch.initialize(model, optimizer, job=job, **options)


def test_a_job_that_is_closed_before_any_step_outlives_its_daemon(daemon: Daemon) -> None:
    model, _ = small("closed")
    values = model.state_dict()
    tierd.torch.close(model)
    daemon.kill()
    daemon.start()
    again = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(again.parameters(), lr=0.01)
    tierd.torch.initialize(again, optimizer, job="closed", mode=_core.RESUME)
    assert all(torch.equal(value, values[name]) for name, value in again.state_dict().items())


def test_a_plain_loop_is_told_what_to_do_when_its_daemon_was_restarted(daemon: Daemon) -> None:
    network, optimizer = small("told")
    network(torch.ones(1, 2)).sum().backward()
    daemon.kill()
    daemon.start()
    with pytest.raises(
        tierd.torch.StaleError, match=r"was at step 0: start the script again, and it goes on; a loop over"
    ):
        optimizer.step()


def test_a_loop_is_told_that_it_begins_anew_where_no_value_was_durable(daemon: Daemon) -> None:
    network, optimizer = small("anew", durability="none")
    with pytest.raises(tierd.torch.Error, match="were on NVMe for good: start the script again, and it begins anew"):
        for (inputs,) in tierd.torch.resumable(DataLoader(TensorDataset(torch.ones(4, 2)))):
            network(inputs).sum().backward()
            daemon.kill()
            daemon.start()
            optimizer.step()


@pytest.mark.parametrize("is_durable", [False, True], ids=["at_once", "durable"])
def test_no_tensor_is_taken_for_a_weight_that_lay_there_with_a_daemon_that_is_gone(
    daemon: Daemon, *, is_durable: bool
) -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2)) for _ in range(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tierd.torch.initialize(model, optimizer, job="gone")
    job, crashes = tierd.torch.job_of(model), [2]

    def crash(*_: object) -> None:
        # A unit is there, so what comes next lies elsewhere.
        if len(before) == 4 and crashes and job.core.state()["step"] >= crashes[0]:
            crashes.clear()
            if is_durable:
                # The connection is opened again without a word.
                last = job._last or pytest.fail("there is no step")
                last[1].wait(_core.DURABLE)
            daemon.kill()
            daemon.start()

    before: set[int] = set()
    model.get_submodule("1.0").register_forward_pre_hook(crash)
    for batch in tierd.torch.resumable(DataLoader(Counting())):
        model(batch).sum().backward()
        optimizer.step()
        if crashes:
            before |= job.addresses.keys()
    assert not crashes
    assert not (is_durable and job.membership.losses)
    assert len(job.addresses) == len(list(model.parameters()))
    assert not job.addresses.keys() & before


def test_each_pass_reads_its_data_once() -> None:
    model, optimizer = small("reads")
    data = Counting()
    for _ in range(3):
        for batch in tierd.torch.resumable(DataLoader(data)):
            model(batch).sum().backward()
            optimizer.step()
    assert data.reads == 3 * len(data)


def test_a_pass_that_was_left_is_not_gone_on_with() -> None:
    model, optimizer = small("left")
    seen: list[list[float]] = []
    for most in (2, 5):
        seen.append([])
        for batch in tierd.torch.resumable(DataLoader(Counting())):
            model(batch).sum().backward()
            optimizer.step()
            seen[-1].append(batch[0, 0].item())
            if len(seen[-1]) == most:
                break
    assert seen == [[0, 1], [0, 1, 2, 3, 4]]


def test_a_scheduler_of_a_training_that_goes_on_at_its_first_step_warns_of_nothing() -> None:
    rates = []
    for _ in range(2):
        model, optimizer = small("first")
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for batch in tierd.torch.resumable(DataLoader(Counting()), scheduler):
                model(batch).sum().backward()
                optimizer.step()
                rates.append(optimizer.param_groups[0]["lr"])
                break
        tierd.torch.close(model)
    assert rates == pytest.approx([0.01, 0.001])


def test_what_came_to_nothing_with_a_step_is_kept_with_the_next_one() -> None:
    model, optimizer = small("nothing")
    tierd.torch.state["best"] = 1.5
    for loss in (float("nan"), 1.0):
        (model(torch.ones(2)).sum() * loss).backward()
        optimizer.step()
        if loss == 1.0:
            tierd.torch.job_of().finish()
        else:
            with pytest.raises(tierd.Error, match="NaN"):
                tierd.torch.job_of().finish()
    tierd.torch.close(model)
    model, _ = small("nothing")
    assert tierd.torch.state == {"best": 1.5}


def test_micro_batches_that_no_step_took_are_handed_out_once() -> None:
    model, optimizer = small("micro")
    seen: list[float] = []
    for _ in range(2):
        for count, batch in enumerate(tierd.torch.resumable(DataLoader(Counting())), 1):
            model(batch).sum().backward()
            seen.append(batch[0, 0].item())
            if count % 2 == 0:
                optimizer.step()
    assert seen == 2 * [0.0, 1.0, 2.0, 3.0, 4.0]
    optimizer.step()
