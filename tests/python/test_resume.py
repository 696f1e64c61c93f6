"""A training goes on after its trainer or its daemon was killed, and ends with the bits of an undisturbed one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
