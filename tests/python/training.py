"""Trains with tierd what `reference` trains without."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import tierd.torch as tierd
from conftest import PATIENCE, tierctl
from reference import Plan, Training, train
from tierd import _core
from tierd.torch.job import TorchJob

# The collector does not look at what torch has made so far, late imports included, each time that jobs have ended.
torch.compiler.disable(id)
gc.freeze()

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


def initialize(model: nn.Module, optimizer: Optimizer, job: str, **options: Any) -> tuple[nn.Module, Optimizer]:
    """Puts a model on tierd, alone, at stage 3 unless the options say else."""
    defaults: dict[str, Any] = {"stage": 3, "rank": 0, "world_size": 1}
    return tierd.initialize(model, optimizer, job=job, **(defaults | options))


def trained(plan: Plan, make_optimizer: MakeOptimizer, job: str, **options: Any) -> Training:
    """What comes of a plan with tierd, which clips where the plan says so."""
    model = plan.make_model()
    optimizer = make_optimizer(model.parameters())
    model, optimizer = initialize(model, optimizer, job, max_grad_norm=plan.max_grad_norm, **options)
    try:
        return train(plan, model, optimizer)
    finally:
        end(model, job)


def update(loss: torch.Tensor, optimizer: Optimizer) -> None:
    """What a loop does with the loss of a batch."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def early_updates(job: str) -> int:
    """How many units of a job were updated before their step was closed."""
    counted = tierctl("metrics")
    lines = [line.split() for line in counted.splitlines() if line.startswith("tierd_job_early_updates_total{")]
    (found,) = [int(count) for label, count in lines if f'"{job}"' in label]
    return found


def await_early_updates(job: TorchJob, optimizer: Optimizer) -> None:
    """Has each step durable before the next one begins, and the second one closed when something is updated already: a
    daemon may be slower than its trainer."""
    membership, finish_step = job.membership, job.membership.finish_step
    written: list[int] = []  # when a step was durable

    def bytes_written() -> int:
        return int(job.core.statistics()["job_update_written_bytes"])

    def finish(ticket: _core.Ticket) -> dict[str, Any] | None:
        result = finish_step(ticket)
        membership.attempt(lambda: ticket.wait(_core.DURABLE))
        written.append(bytes_written())
        return result

    def wait(*_: object) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(written) == 1 and bytes_written() == written[0]:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def finish_at_once(*_: object) -> None:
        job.finish()

    membership.finish_step = finish  # type: ignore[method-assign]
    optimizer.register_step_pre_hook(wait)
    optimizer.register_step_post_hook(finish_at_once)


_ends = itertools.count(1)


def end(model: nn.Module, job: str) -> None:
    """Ends the job and destroys its state, so that thousands of them fit into one daemon."""
    tierd.job_of(model).close()
    # Connections go with the jobs' objects, which refer to each other.
    if next(_ends) % 16 == 0:
        gc.collect()
    tierctl("drop", "--yes", "--force", job)
