"""Ends the interpreter in each state that a trainer can be in: one child for each, all of them forked after the imports.

Prints the name of each and what it ended with: 0, or the negative number of a signal.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tierd
import tierd.torch
from conftest import PATIENCE, TIERCTL, Daemon
from tierd.torch import membership

kept: list[Any] = []


def make(
    job: str, kind: type[torch.optim.Optimizer] = torch.optim.SGD, width: int = 30, **options: Any
) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(30, width), nn.Tanh(), nn.Linear(width, 1))
    optimizer = kind(model.parameters(), lr=0.1)  # type: ignore[call-arg]
    tierd.torch.initialize(model, optimizer, job=job, **({"rank": 0, "world_size": 1} | options))
    kept.append(model)
    return model, optimizer


def loss_of(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.ones(4, 30)).sum()
    return loss


def with_a_live_graph(job: str) -> None:
    kept.append(loss_of(make(job)[0]))


def in_the_middle_of_a_forward(job: str) -> None:
    model, _ = make(job)
    model[1].register_forward_pre_hook(lambda module, arguments: sys.exit(0))
    loss_of(model)


def with_a_step_under_way(job: str) -> None:
    model, optimizer = make(job)
    loss_of(model).backward()
    optimizer.step()


def with_a_lease_of_a_job_that_is_closed(job: str) -> None:
    model, _ = make(job)
    kept.append(next(model.parameters()).detach())
    tierd.torch.close(model)
    kept.append(kept[-1] + 1)


def after_a_backward_that_failed(job: str) -> None:
    model, _ = make(job)

    def fails(gradient: torch.Tensor) -> None:
        raise ValueError

    inner: torch.Tensor = model[0](torch.ones(4, 30))
    inner.register_hook(fails)
    try:
        model[2](model[1](inner)).sum().backward()
    except ValueError:
        return
    raise AssertionError


def in_the_middle_of_a_backward(job: str) -> None:
    model, _ = make(job)

    def ends(gradient: torch.Tensor) -> None:
        sys.exit(0)

    loss = loss_of(model)
    model.get_parameter("0.weight").register_hook(ends)
    loss.backward()


def with_gradients_of_no_step(job: str) -> None:
    loss_of(make(job)[0]).backward()


def in_a_loop_that_goes_on(job: str) -> None:
    model, optimizer = make(job)
    batches = tierd.torch.resumable([0, 1, 2])
    kept.append(batches)
    for _ in batches:
        loss_of(model).backward()
        optimizer.step()
        kept.append(loss_of(model))
        return


def with_an_optimizer_of_the_trainers(job: str) -> None:
    model, optimizer = make(job, torch.optim.RMSprop)
    loss_of(model).backward()
    optimizer.step()


def with_a_follower(job: str) -> None:
    model, optimizer = make(job)
    loss_of(model).backward()
    optimizer.step()
    follower = nn.Sequential(nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 1))
    kept.append(tierd.torch.follow(follower, job=job))
    kept[-1].refresh()
    kept.append(loss_of(follower))


def while_a_thread_trains(job: str) -> None:
    model, optimizer = make(job)
    has_begun = threading.Event()

    def run() -> None:
        while True:
            loss_of(model).backward()
            optimizer.step()
            has_begun.set()

    threading.Thread(target=run, daemon=True).start()
    has_begun.wait()


def while_a_rank_is_missing(job: str) -> None:
    membership.PATIENCE_MS = 1
    make(job, world_size=2)


def while_another_rank_takes_long(job: str) -> None:
    other = threading.Thread(target=make, args=(job,), kwargs={"rank": 1, "world_size": 2})
    other.start()
    model, optimizer = make(job, world_size=2)
    other.join()
    loss_of(model).backward()
    optimizer.step()
    loss_of(model)


def in_a_process_that_was_forked(job: str) -> None:
    model, optimizer = make(job)
    loss_of(model).backward()
    child = os.fork()
    if child == 0:
        for use in (lambda: model(torch.ones(4, 30)), lambda: tierd.torch.summary(model), optimizer.step):
            try:
                use()
            except tierd.Error as error:
                assert "in a process that was forked, as workers of a DataLoader are" in str(error), error
            else:
                raise AssertionError(use)
        return
    assert end_of(child, in_a_process_that_was_forked) == 0
    optimizer.step()


def after_the_daemon_has_gone(job: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        daemon = Daemon(Path(folder), Path(folder))
        os.environ["TIERD_SOCKET"] = str(daemon.socket)
        daemon.start()
        # Its step takes longer than it takes to kill the daemon: the answer never comes.
        model, optimizer = make(job, torch.optim.AdamW, width=200_000)
        loss_of(model).backward()
        optimizer.step()
        daemon.kill()


# These are interrupted when they wait for that of another rank.
INTERRUPTED = {while_a_rank_is_missing: "ready", while_another_rank_takes_long: "step"}


def waits(job: str, what: str) -> bool:
    report = subprocess.run([TIERCTL, "--json", "jobs", job], capture_output=True, text=True, check=False)
    waits = json.loads(report.stdout)["waits"] if report.returncode == 0 else None
    return waits is not None and waits["for"] == what


def end_of(child: int, scene: Callable[[str], None]) -> int:
    deadline = time.monotonic() + PATIENCE
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        elif scene in INTERRUPTED and waits(scene.__name__, INTERRUPTED[scene]):
            os.kill(child, signal.SIGINT)
        time.sleep(0.02)


def say_unless_interrupted(said: Any) -> None:
    """It is interrupted as long as it seems to wait, and may be at the end of a job already."""
    if said.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(said)


SCENES = (
    with_a_live_graph,
    in_the_middle_of_a_forward,
    with_a_step_under_way,
    with_a_lease_of_a_job_that_is_closed,
    after_a_backward_that_failed,
    in_the_middle_of_a_backward,
    with_gradients_of_no_step,
    in_a_loop_that_goes_on,
    with_an_optimizer_of_the_trainers,
    with_a_follower,
    while_a_thread_trains,
    in_a_process_that_was_forked,
    after_the_daemon_has_gone,
    *INTERRUPTED,
)

# Late imports happen once, here, and no child looks through all that is imported when it ends.
torch.compiler.disable(id)
gc.freeze()
for scene in SCENES:
    child = os.fork()
    if child == 0:
        sys.unraisablehook = say_unless_interrupted
        # After its jobs, and before what torch has to do then.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        scene(scene.__name__)
        break
    print(scene.__name__, end_of(child, scene), flush=True)
