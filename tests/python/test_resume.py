"""A training goes on after its trainer or its daemon was killed, and ends with the bits of an undisturbed one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import tierd.torch
from conftest import PATIENCE, TIERCTL, Daemon

SCRIPT = Path(__file__).with_name("resumed.py")
PASSES = 40


def start(job: str) -> subprocess.Popen[str]:
    """A trainer of that job."""
    command = [sys.executable, str(SCRIPT), job, str(PASSES)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(trainer: subprocess.Popen[str]) -> list[str]:
    """What a trainer says at its end: steps, learning rate, hash."""
    output, errors = trainer.communicate(timeout=PATIENCE)
    assert trainer.returncode == 0, errors
    return output.splitlines()[-1].split()


def step_of(job: str) -> int:
    """The last applied step; -1 while the daemon does not answer or has no such job."""
    said = subprocess.run([TIERCTL, "jobs", "--json"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        return -1
    steps = [int(found["step"] or 0) for found in json.loads(said.stdout) if found["name"] == job]
    return steps[0] if steps else -1


def await_step(job: str, step: int, trainer: subprocess.Popen[str]) -> None:
    """Waits until the job has come so far."""
    deadline = time.monotonic() + PATIENCE
    while step_of(job) < step:
        assert trainer.poll() is None, trainer.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="session")
def undisturbed(daemon: Daemon) -> list[str]:
    return result(start("undisturbed"))


def test_a_trainer_that_is_killed_goes_on_where_the_job_stands(undisturbed: list[str]) -> None:
    for step in (100, 300):
        trainer = start("killed")
        await_step("killed", step, trainer)
        trainer.kill()
        output, _ = trainer.communicate()
        assert "done" not in output
    trainer = start("killed")
    assert trainer.stdout is not None
    assert int(trainer.stdout.readline().split()[1]) >= 300
    assert result(trainer) == undisturbed


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_training_outlives_its_daemon(how: str, undisturbed: list[str], daemon: Daemon) -> None:
    trainer = start(f"daemon-{how}")
    for step in (100, 300, 500):
        await_step(f"daemon-{how}", step, trainer)
        if how == "killed":
            daemon.kill()
        else:
            daemon.stop()
        daemon.start()
    assert result(trainer) == undisturbed


def test_a_training_that_is_over_does_nothing(undisturbed: list[str]) -> None:
    trainer = start("undisturbed")
    assert result(trainer) == undisturbed


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


def small(job: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model of its own for what one process does."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return tierd.torch.initialize(model, optimizer, job=job)


def test_each_pass_reads_its_data_once(daemon: Daemon) -> None:
    model, optimizer = small("reads")
    data = Counting()
    for _ in range(3):
        for batch in tierd.torch.resumable(DataLoader(data)):
            model(batch).sum().backward()
            optimizer.step()
    assert data.reads == 3 * len(data)
    tierd.torch.close(model)


def test_a_pass_that_was_left_is_not_gone_on_with(daemon: Daemon) -> None:
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
    tierd.torch.close(model)


def test_micro_batches_that_no_step_took_are_handed_out_once(daemon: Daemon) -> None:
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
    tierd.torch.close(model)
