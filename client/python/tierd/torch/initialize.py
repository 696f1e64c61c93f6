"""`initialize()`: puts a model and its optimizer on tierd."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn

from tierd import _core
from tierd._core import Error
from tierd.daemon import find_or_start
from tierd.torch import compat, deepspeed
from tierd.torch.checks import check, check_values
from tierd.torch.clipping import clip_grad_norm_
from tierd.torch.job import TorchJob, open_jobs
from tierd.torch.opening import open_as
from tierd.torch.optimizer import translate
from tierd.torch.plan import add_plan
from tierd.torch.quantized import settle
from tierd.torch.ranks import from_environment
from tierd.torch.resume import Stateful
from tierd.torch.save import write_model
from tierd.torch.units import Chooser
from tierd.torch.writes import catch_writes

Batch = TypeVar("Batch")
Optimizers = TypeVar("Optimizers", bound=torch.optim.Optimizer | Sequence[torch.optim.Optimizer])


def initialize(
    model: nn.Module,
    optimizer: Optimizers | None = None,
    *,
    job: str,
    max_grad_norm: float | None = None,
    stage: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    units: Chooser | None = None,
    gradient_bytes: int | None = None,
    gradient_dtype: torch.dtype | None = None,
    moments: str = "fp32",
    optimizer_state_bytes: int | None = None,
    random_states: bool = True,
    socket: str | None = None,
    nvme: str | None = None,
    reconnect_ms: int = 30_000,
    config: deepspeed.Config | None = None,
    **options: Any,
) -> tuple[nn.Module, Optimizers]:
    """Puts a model and its optimizer on tierd. Both are the same objects afterwards; the training loop stays as it is.

    Args:
        model: parameters are float32, bfloat16 or float16, in the host's memory; frozen ones may be integers, too. Those
            whose values are the job's, or rank 0's, may be on meta.
        optimizer: AdamW, Adam, SGD and Lion are the daemon's. Any other runs in the trainer, and a line says so. Several,
            in a list, take each step together. Groups stay live: a new learning rate counts from the next step. None:
            that of the configuration, over all parameters that require gradients.
        job: name of the job. One of this name that exists is resumed: the model then has its values.
        max_grad_norm: gradients are clipped to this global 2-norm; 0: they are not. None: as the configuration says, else 0.
        stage: of ZeRO, 0 to 3: what is partitioned over the ranks. None: as the configuration says, else 3.
        rank, world_size: None: what torchrun, Slurm or Open MPI say.
        units: names of classes whose modules are gathered as one, or a function of a module's name and the module;
            None: the blocks of the model (units.choose).
        gradient_bytes: of each rank's room for gradients on their way to the daemon, at least the largest unit's; None: room for
            that and three others. The more there is, the less backward waits for gradients to be summed.
        gradient_dtype: torch.float32: autograd makes gradients of bfloat16 and float16 parameters in that, and so they go to the
            daemon; None: each parameter's grad_dtype says it, which is its own type at first. Needs a PyTorch that has
            Tensor.grad_dtype.
        moments: how the daemon keeps what its optimizer has beside masters: "fp32", "bf16" or "int8".
        optimizer_state_bytes: room for what an optimizer keeps that runs in the trainer, of all ranks; None: what a trial
            says; 0: it is not kept with the job, and ends with the trainer.
        random_states: those of torch, Python and NumPy are kept with each step, and come back with it.
        socket: where the daemon listens; None: $TIERD_SOCKET, else the usual places. Where none listens a private one is
            started, which ends with this node's ranks and says so on standard error (tierd.daemon.find_or_start).
        nvme: of a private daemon: "FOLDER:SIZE", where state lies that outlives it; None: all in memory.
        reconnect_ms: how long a daemon that is restarted is waited for.
        config: of DeepSpeed, a path or a dict. A line on standard error has what of it is left out. What contradicts an
            argument is an error (tierd.torch.deepspeed).
        options: other fields of struct tierd_job_options: see tierd_job_options(3). loss_scale and loss_scale_interval
            have losses scaled by scale_loss().

    Raises:
        tierd.Error: a parameter or an option that is not supported; ranks that differ; no daemon; no room, with the plan.
    """
    if rank is None or world_size is None:
        rank, world_size = from_environment()
    if config is not None:
        given = {"stage": stage, "max_grad_norm": max_grad_norm, "nvme": nvme, **options}
        if isinstance(optimizer, Sequence):
            raise Error(errno.EINVAL, "a config has one optimizer: give one, or none")
        made, options, left_out = deepspeed.read(config, model, optimizer, world_size, given)
        optimizer = cast(Optimizers | None, made)
        stage, max_grad_norm, _ = (options.pop(name) for name in ("stage", "max_grad_norm", "nvme"))
        if left_out and rank == 0:
            print(f"tierd: of the configuration this is left out: {', '.join(left_out)}", file=sys.stderr, flush=True)
    if optimizer is None:
        raise Error(errno.EINVAL, "there is no optimizer: give one, or a config with a section optimizer")
    stage = 3 if stage is None else stage
    max_grad_norm = 0.0 if max_grad_norm is None else float(max_grad_norm)
    check(model)
    settle(model)
    opening = open_as(
        model,
        optimizer,
        job,
        rank=rank,
        world_size=world_size,
        stage=stage,
        units=units,
        options=options,
        moments=moments,
        optimizer_state_bytes=optimizer_state_bytes,
        gradient_bytes=gradient_bytes,
        gradient_dtype=gradient_dtype,
        random_states=random_states,
    )
    path = socket or find_or_start(nvme)
    core = _core.Node(path, reconnect_ms).open_job(opening.options, opening.rule.groups_to_open(opening.param_groups))
    torch_job = TorchJob(model, opening, core, path, max_grad_norm)
    try:
        is_new = core.state()["status"] == _core.NEW
        if is_new and rank == 0:
            check_values(model)
        torch_job.define(opening)
        if is_new and rank == 0:
            torch_job.write()
        torch_job.membership.ready()
        torch_job.install(opening.units)
        if not is_new:
            torch_job.restore()
        for each in opening.optimizers:
            translate(each, torch_job)
    except BaseException as error:
        torch_job.detach()
        add_plan(error, opening, path)
        raise
    compat.replace_clipping(clip_grad_norm_)
    catch_writes()
    if opening.local is not None and rank == 0:
        opening.local.say()
    return model, optimizer


def job_of(model: nn.Module | None = None) -> TorchJob:
    """The job of a model; without one the job that was initialized last. tierd.Error: there is none."""
    for job in reversed(open_jobs):
        if model is None or job.model is model:
            return job
    raise Error(errno.EINVAL, "tierd.initialize() has not been called" + ("" if model is None else " for this model"))


def scale_loss(loss: torch.Tensor, model: nn.Module | None = None) -> torch.Tensor:
    """The loss times the job's loss scale, to go backward from; the daemon divides gradients by it.

    For a job that was initialized with loss_scale=, and loss_scale_interval= if it is to move: after a step whose
    gradients are not finite, which updates nothing, it is halved, and after so many good ones doubled. loss: a scalar.
    model: whose job; None: the one that was initialized last. tierd.Error: the job has no loss scale.
    """
    return job_of(model).scale_loss(loss)


def close(model: nn.Module | None = None) -> None:
    """Ends the membership of a model's job in good order, after its last step; the state stays with the daemon.

    Without it that happens at the interpreter's exit. The model cannot be used any more. model: None: the one that was
    initialized last. tierd.Error: what the last step failed with.
    """
    job_of(model).close()


def save(path: str | os.PathLike[str], model: nn.Module | None = None, *, max_file_bytes: int = 5_000_000_000) -> None:
    """Writes the model's values, after the last step, as safetensors; a unit at a time, so they need no memory.

    One rank calls it, and the others go on until their next step. Files get their names when all of them are written:
    what was there before stays until then. A bar on a terminal shows how far it is, where tqdm is installed.

    Args:
        path: a file, NAME.safetensors; or a folder. It is made, and gets model.safetensors, or several such files and an
            index. Of a model of transformers it also gets what else `from_pretrained()` reads, and the tensors have the
            names that they have on its hub, where a unit has all that such a name is made of. Names that are tied to
            others are left out, and are in the metadata.
        model: whose job; None: the one that was initialized last.
        max_file_bytes: of a file in a folder; a larger tensor has one of its own.

    Raises:
        tierd.Error: it cannot be written (ENOSPC: no room); a value is of a type that such files do not have.
    """
    write_model(job_of(model), Path(path), max_file_bytes)


def resumable(loader: Iterable[Batch], *objects: Stateful, model: nn.Module | None = None) -> Iterator[Batch]:
    """One pass over a loader's batches, from where the job stands.

    In a script that was started again it skips what the job has been trained with already: whole passes, and of the
    pass under way the batches before the job's step; the loader's order is the same, since random states are kept.
    When a rank is lost or the daemon restarted, the loop goes back to the step at which the job stands, without an
    error: the iteration under way runs to its end, but counts for nothing. objects: schedulers and whatever else has
    state_dict() and load_state_dict(); their states are kept with each step. model: whose job; else the one that was
    initialized last.
    """
    return job_of(model).position.batches(loader, objects)
