"""Clipping by the global norm: by the daemon, which has the gradients when torch's own function finds none any more."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import torch

from tierd._core import Error
from tierd.torch import compat
from tierd.torch.arguments import norm
from tierd.torch.job import open_jobs
from tierd.torch.step import Norm


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """As torch.nn.utils.clip_grad_norm_, of a model on tierd: the coming step clips its gradients to this norm.

    Args:
        parameters: all trained parameters of a job.
        max_norm: what their global norm is at most after clipping; infinite: they are not clipped, as with 0 of
            max_grad_norm.
        norm_type: 2.
        error_if_nonfinite, foreach: mean nothing here: what is not finite fails the step in any case.

    Returns:
        The norm before clipping, a scalar of float32, to be looked at after the step.

    Raises:
        tierd.Error: another norm than the 2-norm, one that is negative or NaN, or not all trained parameters of one job.
    """
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    jobs = [job for job in open_jobs if job.trains_any(parameters)]
    if not jobs:
        return compat.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
    if float(norm_type) != 2.0:
        raise Error(errno.ENOTSUP, f"tierd clips by the 2-norm, not by the {norm_type}-norm")
    if len(jobs) > 1 or not jobs[0].trains_only(parameters):
        raise Error(
            errno.ENOTSUP,
            "tierd clips all trained parameters of a job together: give model.parameters(), of one model, without what requires "
            "gradients and is in no optimizer",
        )
    jobs[0].coming.clip_norm = norm("max_norm", max_norm)
    return Norm.of(jobs[0].coming)
