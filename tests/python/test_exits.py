"""Ends of the interpreter, and Ctrl-C: no hang and no crash, whatever is under way."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import tierd.torch
from conftest import PATIENCE, Daemon
from training import initialize

EXPECTED = {
    "with_a_live_graph": 0,
    "in_the_middle_of_a_forward": 0,
    "with_a_step_under_way": 0,
    "with_a_lease_of_a_job_that_is_closed": 0,
    "after_a_backward_that_failed": 0,
    "in_the_middle_of_a_backward": 0,
    "with_gradients_of_no_step": 0,
    "in_a_loop_that_goes_on": 0,
    "with_an_optimizer_of_the_trainers": 0,
    "with_a_follower": 0,
    "while_a_thread_trains": 0,
    "in_a_process_that_was_forked": 0,
    "after_the_daemon_has_gone": 0,
    "while_a_rank_is_missing": -signal.SIGINT,
    "while_another_rank_takes_long": -signal.SIGINT,
}


def test_the_interpreter_ends_in_every_state(daemon: Daemon) -> None:
    program = Path(__file__).with_name("exits.py")
    run = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    ends = dict(line.split() for line in run.stdout.splitlines() if len(line.split()) == 2)
    assert run.returncode == 0, run.stderr
    assert {name: int(status) for name, status in ends.items()} == EXPECTED, run.stderr
    assert "still waiting for rank 1" in run.stderr
    assert "Exception ignored" not in run.stderr
    assert "atexit" not in run.stderr
    assert "with it the answer to its last step; started again, the script goes on with what tierd" in run.stderr


def private_bytes() -> int:
    """Of this process, without files, and what it shares with the daemon."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Anonymous:"))


def test_a_thousand_steps_leave_no_memory_and_no_lease() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Dropout(0.1)) for _ in range(3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    initialize(model, optimizer, "thousand", max_grad_norm=1.0)
    before = 0
    for step in range(1000):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        if step == 200:
            gc.collect()
            before = private_bytes()
    tierd.torch.job_of(model).finish()
    gc.collect()
    assert tierd.torch.job_of(model).core.leases() == 0
    # Allocators round up; a view, a ticket or a hook for each step would take more.
    assert private_bytes() - before < 256 << 10
