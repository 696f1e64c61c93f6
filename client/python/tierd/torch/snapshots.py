"""Snapshots: steps of a job that are kept under names, on its devices, and to which it can go back."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torch import nn

from tierd._core import Error, StaleError
from tierd.control import ask
from tierd.torch.initialize import job_of
from tierd.torch.job import TorchJob


@dataclass(frozen=True)
class Snapshot:
    """A step of a job that is kept under a name."""

    name: str
    step: int
    taken: datetime  # in local time
    own_bytes: int | None  # of NVMe that it alone keeps; None: not known yet
    is_lost: bool  # its map cannot be read


def snapshot(name: str, model: nn.Module | None = None) -> None:
    """Keeps the last step of a model's job under a name: values, moments, and all that is kept with the step.

    One rank calls it, after its `optimizer.step()`; others go on meanwhile. Nothing is copied: it waits until the step is
    durable, which takes milliseconds. The job needs room for it on NVMe: `initialize(snapshots=2)`. Within `resumable()` it
    does nothing in an iteration that counts for nothing, which is done again.

    Args:
        name: 1 to 63 letters, digits, dots, underscores and hyphens.
        model: whose job; None: the one that was initialized last.

    Raises:
        tierd.Error: there is one of that name (EEXIST), or no room (ENOSPC); the job is not on NVMe (EOPNOTSUPP); what
            the last step failed with.
    """
    job = job_of(model)
    job.finish()
    if not _counts_for_nothing(job):
        job.membership.attempt(lambda: job.core.snapshot(name))


def rollback(name: str, model: nn.Module | None = None) -> int:
    """Takes a model's job back to a snapshot, and destroys what came after it; other snapshots stay.

    Parameters, moments, buffers, random states and `tierd.state` are then those of the snapshot's step. Within
    `resumable()` the iteration under way runs to its end, but counts for nothing, and the loop goes on from there, with
    the loader, schedulers and groups as they were; so does the next one, if none is under way.

    One rank calls it, and waits for the others: in `resumable()` they go back by themselves, and else they get
    tierd.StaleError. It does no harm if several ranks call it.

    Args:
        name: of a snapshot: see `snapshots()`.
        model: whose job; None: the one that was initialized last.

    Returns:
        The step at which the job stands now.

    Raises:
        tierd.Error: there is no such snapshot (ENOENT), or it is not this user's job (EPERM): nothing has changed.
    """
    job = job_of(model)
    with suppress(Error):  # whatever has come of the last step, it is to go
        job.finish()
    if _counts_for_nothing(job):
        return job.membership.step
    with suppress(StaleError):  # another rank was faster, or is lost: neither keeps this job from going back
        job.membership.core.state()  # raises where this process cannot go on with the job
    try:
        _ask(job, "rollback", name, "--force", "--yes")
    except Error as error:
        if error.errno != errno.EAGAIN:  # then another rank was faster, and the job is on its way back
            raise
    return job.come_back()


def snapshots(model: nn.Module | None = None) -> list[Snapshot]:
    """The snapshots of a model's job, in the order in which they were taken. Any rank calls it.

    model: whose job; None: the one that was initialized last. tierd.Error: the job is not on NVMe (EOPNOTSUPP).
    """
    return [
        Snapshot(
            found["name"],
            found["step"],
            datetime.fromtimestamp(found["seconds"]),
            found["own_bytes"],
            found["is_lost"],
        )
        for found in _ask(job_of(model), "snapshots")["snapshots"]
    ]


def destroy_snapshot(name: str, model: nn.Module | None = None) -> None:
    """Destroys a snapshot of a model's job: its room can be used again. One rank calls it; others do not notice.

    model: whose job; None: the one that was initialized last. tierd.Error: there is no such snapshot (ENOENT).
    """
    _ask(job_of(model), "snapshot", name, "--delete")


def _counts_for_nothing(job: TorchJob) -> bool:
    """Whether this is said in an iteration that is done again."""
    return job.membership.is_void and job.membership.is_in_loop


def _ask(job: TorchJob, verb: str, *arguments: str) -> Any:
    return ask(verb, job.name, *arguments, "--user", str(job.owner), socket=job.socket)
