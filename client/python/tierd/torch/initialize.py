"""`initialize()`: puts a model and its optimizer on tierd."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tierd import _core
from tierd.torch import optimizer as optimizers
from tierd.torch.job import TorchJob
from tierd.torch.ranks import from_environment
from tierd.torch.units import Chooser, choose


def initialize(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    job: str,
    max_grad_norm: float = 0.0,
    stage: int = 3,
    rank: int | None = None,
    world_size: int | None = None,
    units: Chooser | None = None,
    socket: str | None = None,
    **options: Any,
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Puts a model and its optimizer on tierd: both are the same objects afterwards, and the training loop stays as it is.

    job: the job's name; a job of this name that exists is resumed, and the model has its values then. max_grad_norm: gradients are
    clipped to this global 2-norm; 0: they are not. rank, world_size: else what torchrun, Slurm or Open MPI say. units: which modules
    are gathered as one (units.choose). socket: of the daemon; else $TIERD_SOCKET and the usual places. options: other fields of
    struct tierd_job_options, see tierd_job_options(3).
    """
    if rank is None or world_size is None:
        rank, world_size = from_environment()
    plans = choose(model, units)
    groups = {id(parameter): i for i, group in enumerate(optimizer.param_groups) for parameter in group["params"]}
    settings = {
        "name": job,
        "rank": rank,
        "world_size": world_size,
        "stage": stage,
        "optimizer": optimizers.kind_of(optimizer),
        "clip_norm": max_grad_norm,
        "nonfinite": _core.NONFINITE_REPORT,
        "gradient_buffers": 4,
        **options,
    }
    core = _core.Node(socket).open_job(settings, optimizers.groups_of(optimizer))
    torch_job = TorchJob(core, model, world_size)
    torch_job.define(plans, groups)
    if core.state()["status"] == _core.NEW and rank == 0:
        torch_job.write()
    core.ready()
    torch_job.install(plans, groups)
    optimizers.translate(optimizer, torch_job)
    return model, optimizer
