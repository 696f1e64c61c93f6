"""`initialize()`: puts a model and its optimizer on tierd."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn

from tierd import _core
from tierd._core import Error
from tierd.daemon import find_or_start
from tierd.torch import arguments, compat, deepspeed
from tierd.torch.checks import check, check_on_gpu, check_state, check_values
from tierd.torch.clipping import clip_grad_norm_
from tierd.torch.device import choose, move_buffers
from tierd.torch.job import TorchJob, open_jobs
from tierd.torch.opening import Opening, open_as
from tierd.torch.optimizer import translate
from tierd.torch.plan import add_plan
from tierd.torch.quantized import settle
from tierd.torch.ranks import this_rank
from tierd.torch.resume import Stateful
from tierd.torch.save import write_model
from tierd.torch.tier import UNITS_ARE_COPIED, say
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
    device: str | torch.device | None = None,
    gpu_tier: bool | None = None,
    units: Chooser | None = None,
    gradient_bytes: int | str | None = None,
    gradient_dtype: torch.dtype | None = None,
    may_thaw: bool | Iterable[str] = False,
    moments: str = "fp32",
    optimizer_state_bytes: int | str | None = None,
    random_states: bool = True,
    early_updates: bool = False,
    socket: str | os.PathLike[str] | None = None,
    nvme: str | None = None,
    reconnect_ms: int = 30_000,
    config: deepspeed.Config | None = None,
    **options: Any,
) -> tuple[nn.Module, Optimizers]:
    """Puts a model and its optimizer on tierd. Both are the same objects afterwards; the training loop stays as it is.

        model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        model, optimizer = tierd.initialize(model, optimizer, job="gpt", max_grad_norm=1.0, nvme="/data/nvme:200G")
        for batch in tierd.resumable(loader):
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    Parameters, gradients and optimizer state are then the daemon's, which starts where none listens. Each step is kept: the
    same script, started again with the same job, goes on. All ranks of a launch call it; rank 0 gives a new job its values.

    Args:
        model: parameters are float32, bfloat16 or float16, in the host's memory or on one GPU; frozen ones may be integers, too.
            Those whose values are the job's, or rank 0's, may be on meta. It may not be wrapped (DistributedDataParallel).
        optimizer: made over this model's parameters, before it has moments. AdamW, Adam, SGD and Lion are the daemon's. Any
            other runs in the trainer, and a line says so. Several, in a list, take each step together. Groups stay live: a
            new learning rate counts from the next step. Parameters of no optimizer are not updated. None: that of the
            configuration, over all parameters that require gradients; or none at all, if no parameter requires them.
        job: name of the job: letters, digits, ".", "_", "-". One of this name that exists is resumed: the model then has its
            values, and no longer its own.
        max_grad_norm: gradients are clipped to this global 2-norm; 0: they are not. None: as the configuration says, else 0.
        stage: of ZeRO, 0 to 3: what is partitioned over the ranks. None: as the configuration says, else 3.
        rank, world_size: both, or neither: then what torchrun, Slurm or Open MPI say, else 0 of 1.
        device: on which the model is computed: "cpu", or a GPU, "cuda" or "cuda:1"; "cuda" is the GPU of the rank's number on its
            node. Buffers are moved there, too. None: where its parameters are.
        gpu_tier: on a GPU, True: parameters are views of memory that the daemon has there, gpu_budget= bytes at most. False:
            each unit is copied to memory of PyTorch's when it is needed. None: the former, or the latter where the daemon has
            none; then a line says why.
        units: names of classes whose modules are gathered as one (["GPT2Block"]), or a function of a module's name and the
            module; None: the blocks of the model (units.choose). The largest unit bounds how small the daemon may be.
        gradient_bytes: of each rank's room for gradients on their way to the daemon, at least the largest unit's; None: room for
            that and three others. The more there is, the less backward waits for gradients to be summed.
        gradient_dtype: torch.float32: autograd makes gradients of bfloat16 and float16 parameters in that, and so they go to the
            daemon; None: each parameter's grad_dtype says it, which is its own type at first. Needs a PyTorch that has
            Tensor.grad_dtype.
        may_thaw: what is frozen now (requires_grad False), and may be trained later: names of parameters or of modules, or
            True for all. They take the room of trained ones. What the optimizer does not have yet is given to it by
            add_param_group().
        moments: how the daemon keeps what its optimizer has beside masters: "fp32", "bf16" or "int8".
        optimizer_state_bytes: room for what an optimizer keeps that runs in the trainer, of all ranks; None: what a trial
            says; 0: it is not kept with the job, and ends with the trainer.
        random_states: those of torch, Python and NumPy are kept with each step, and come back with it.
        early_updates: True is a promise: each step has one backward, and neither groups nor clipping change between its first
            gradient and step(). Then state on NVMe is updated while backward goes on, where nothing is clipped and the
            last step is durable; with the same bits. A step that breaks it is refused (EINVAL).
        socket: where the daemon listens; None: $TIERD_SOCKET, else the usual places. Where none listens a private one is
            started, which ends with this node's ranks and says so on standard error (tierd.daemon.find_or_start).
        nvme: of a private daemon: "FOLDER:SIZE", as "/data/nvme:200G", where state lies that outlives it; None: all in memory,
            and the job ends with its daemon.
        reconnect_ms: how long a daemon that is restarted is waited for.
        config: of DeepSpeed, a path or a dict. A line on standard error has what of it is left out. What contradicts an
            argument, or is misspelt, is an error (tierd.torch.deepspeed).
        options: other fields of struct tierd_job_options, as of tierd_job_options(3). Of a new job, above all:
            host_budget, nvme_budget: bytes that the job may take, at most; gpu_budget: of the memory of each GPU.
            parameter_placement, optimizer_placement, gradient_placement: "host" or "nvme"; else on NVMe, where there is some.
            durability: seconds after which a step is on NVMe for good, or "step" or "none".
            snapshots: room for so many; snapshot_every, snapshot_keep: which steps are snapshots.
            loss_scale, loss_scale_interval: have losses scaled by scale_loss().
            blob_bytes: room for what all ranks keep beside the tensors: buffers, tierd.state, random states.
            Sizes, here and above, are bytes or texts such as "8G" (K, M, G and T, of 1024).

    Returns:
        The model and what was given as optimizer: the one that the configuration has where it was None, else None.

    Raises:
        TypeError: an argument that is unknown or of a wrong type, by its name.
        tierd.Error: a parameter or a value that is not supported; a job of another model or with other options (EINVAL), or that
            another process has (EBUSY); ranks that differ; no daemon; no such GPU (ENODEV); no room, with the plan (ENOMEM, ENOSPC).
    """
    arguments.module(model, optimizer)
    options = arguments.options(options, initialize)
    rank, world_size = this_rank(rank, world_size)
    if config is not None:
        given = {"stage": stage, "max_grad_norm": max_grad_norm, "nvme": nvme, **options}
        if isinstance(optimizer, Sequence):
            raise Error(errno.EINVAL, "a config has one optimizer: give one, or none")
        made, options, left_out = deepspeed.read(config, model, optimizer, world_size, given)
        optimizer = cast(Optimizers | None, made)
        stage, max_grad_norm, _ = (options.pop(name) for name in ("stage", "max_grad_norm", "nvme"))
        if left_out and rank == 0:
            print(f"tierd: of the configuration this is left out: {', '.join(left_out)}", file=sys.stderr, flush=True)
    if optimizer is None and any(parameter.requires_grad for parameter in model.parameters()):
        raise Error(
            errno.EINVAL,
            "there is no optimizer: give one, or a config with a section optimizer, or freeze the model (requires_grad_(False))",
        )
    clip_norm = 0.0 if max_grad_norm is None else arguments.norm("max_grad_norm", max_grad_norm)
    reconnect_ms = arguments.integer("reconnect_ms", reconnect_ms)
    socket = arguments.socket_path(socket)
    check(model)
    chosen = choose(model, device)
    gpu_tier = arguments.gpu_tier(gpu_tier, options, chosen)
    if chosen.type != "cpu":
        check_on_gpu(model)
    settle(model)
    opening = open_as(
        model,
        optimizer,
        job,
        rank=rank,
        world_size=world_size,
        stage=3 if stage is None else stage,
        units=units,
        options=options,
        moments=moments,
        optimizer_state_bytes=optimizer_state_bytes,
        gradient_bytes=gradient_bytes,
        gradient_dtype=gradient_dtype,
        may_thaw=may_thaw,
        random_states=random_states,
        early_updates=early_updates,
    )
    for unit in opening.units:
        unit.set_gradient_dtype()
    path = socket or find_or_start(nvme)
    if any((other.name, other.rank, other.socket) == (job, rank, path) for other in open_jobs):
        raise Error(
            errno.EBUSY, f"job {job} is open in this process: tierd.close(model) ends that, and then it goes on here"
        )
    if chosen.type != "cpu" and gpu_tier is not False:
        opening.options["gpu"] = chosen.index
        opening.options.setdefault("gpu_gradients", any(unit.is_trained for unit in opening.units))
    node = _core.Node(path, reconnect_ms)
    core = _open(node, opening, has_room=gradient_bytes is not None, may_copy=gpu_tier is None)
    torch_job = TorchJob(
        model, opening, core, path, clip_norm, chosen, gpu_tier=gpu_tier if "gpu" in opening.options else False
    )
    try:
        is_new = core.state()["status"] == _core.NEW
        if is_new and rank == 0:
            check_values(model)
            if opening.local is None:
                check_state(opening.optimizers)
        torch_job.define(opening)
        if is_new and rank == 0:
            torch_job.write()
        torch_job.membership.ready()
        if device is not None:
            move_buffers(model, torch_job.memory.device)
        torch_job.install(opening.units)
        if not is_new:
            torch_job.restore()
        torch_job.kept.begin()
        for each in opening.optimizers:
            translate(each, torch_job)
    except BaseException as error:
        torch_job.detach()
        add_plan(error, opening, path)
        raise
    compat.replace_clipping(clip_grad_norm_)
    catch_writes()
    if rank == 0:
        _say(opening, model)
    return model, cast(Optimizers, optimizer)


def _open(node: _core.Node, opening: Opening, *, has_room: bool, may_copy: bool) -> _core.Job:
    try:
        return node.open_job(opening.options, opening.groups_to_open())
    except Error as error:
        said, gpu = error.strerror or "", opening.options.get("gpu")
        if gpu is not None and may_copy and re.search(rf"\bGPU {gpu}\b", said):
            # This process cannot share its memory.
            say(torch.device("cuda", gpu), UNITS_ARE_COPIED, said)
            del opening.options["gpu"]
            return _open(node, opening, has_room=has_room, may_copy=False)
        if has_room or "gradient_bytes is" not in said:
            raise
        # Without being told it is made of the units.
        remedy = "it was made with another model, or with other units=: give it those, or take another job="
        raise Error(error.errno or errno.EINVAL, f"{said}: {remedy}") from None


def _say(opening: Opening, model: nn.Module) -> None:
    """Tells what is another than the user may think."""
    if opening.local is not None:
        opening.local.say()
    idle = [name for name, item in model.named_parameters() if item.requires_grad and not opening.groups.has(item)]
    if idle:
        listed = ", ".join(idle[:3]) + (f" and {len(idle) - 3} more" if len(idle) > 3 else "")
        print(
            f"tierd: parameters that require gradients and are in no optimizer ({listed}): nothing updates them, and their "
            "gradients stay in this process; requires_grad_(False) does without",
            file=sys.stderr,
            flush=True,
        )


def job_of(model: nn.Module | None = None) -> TorchJob:
    """The job of a model; without one the job that was initialized last. tierd.Error: there is none."""
    if model is not None:
        arguments.module(model)
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


def save(
    path: str | os.PathLike[str], model: nn.Module | None = None, *, max_file_bytes: int | str = 5_000_000_000
) -> None:
    """Writes the model's values, after the last step, as safetensors; a unit at a time, so they need no memory.

    One rank calls it, and the others go on until their next step. Files get their names when all of them are written:
    what was there before stays until then. A bar on a terminal shows how far it is, where tqdm is installed.

    Args:
        path: a file, NAME.safetensors; or a folder. It is made in one that is there, and gets model.safetensors, or several such files and an
            index. Of a model of transformers it also gets what else `from_pretrained()` reads, and the tensors have the
            names that they have on its hub, where a unit has all that such a name is made of. Names that are tied to
            others are left out, and are in the metadata.
        model: whose job; None: the one that was initialized last.
        max_file_bytes: of a file in a folder, also as "5G"; a larger tensor has one of its own.

    Raises:
        TypeError: it is no path.
        tierd.Error: it cannot be written (ENOENT: there is no such folder; ENOSPC: no room); a value is of a type that such
            files do not have.
    """
    if not isinstance(path, str | os.PathLike):
        raise arguments.wrong_type("path", path, "where to write is wanted, and then the model, if there are several")
    write_model(job_of(model), Path(path), arguments.size("max_file_bytes", max_file_bytes))


def resumable(loader: Iterable[Batch], *objects: Stateful, model: nn.Module | None = None) -> Iterator[Batch]:
    """One pass over a loader's batches, from where the job stands.

    In a script that was started again it skips what the job has been trained with already: whole passes, and of the
    pass under way the batches before the job's step; the loader's order is the same, since random states are kept.
    When a rank is lost or the daemon restarted, the loop goes back to the step at which the job stands, without an
    error: the iteration under way runs to its end, but counts for nothing.

    Args:
        loader: a DataLoader, a list, or what else can be gone over again; no iterator.
        objects: schedulers and whatever else has state_dict() and load_state_dict(); their states are kept with each step.
        model: whose job; None: the one that was initialized last.

    Raises:
        TypeError: it is no such loader, or an object has no state.
        tierd.Error: a loader, or an object, that would not come back as it was.
    """
    return job_of(model).position.batches(loader, objects)
