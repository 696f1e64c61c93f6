"""What the job of a model is opened with: its units, its groups, its options."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tierd import _core
from tierd._core import Error
from tierd.torch import arguments
from tierd.torch.gradients import check_gradient_dtype
from tierd.torch.groups import Groups
from tierd.torch.kept import Kept
from tierd.torch.local import LocalOptimizers
from tierd.torch.optimizer import Rule, kind_of
from tierd.torch.tensors import define_tensor
from tierd.torch.thawing import thawable
from tierd.torch.units import Chooser, Plan, choose, room_for_gradients

MOMENTS = {"fp32": _core.MOMENTS_FP32, "bf16": _core.MOMENTS_BF16, "int8": _core.MOMENTS_INT8}


@dataclass
class Opening:
    """Of one rank."""

    units: list[Plan]
    optimizers: list[torch.optim.Optimizer]
    rule: Rule
    local: LocalOptimizers | None  # where they run in the trainer
    kept: Kept
    groups: Groups
    scales_losses: bool
    is_early: bool  # rates are told before the first gradient
    options: dict[str, Any]  # struct tierd_job_options

    def groups_to_open(self) -> list[dict[str, Any]]:
        """The groups of the job, as it is opened with them."""
        return self.rule.groups_to_open(self.groups.to_open())

    def tensors(self, unit: Plan) -> list[dict[str, Any]]:
        """The definitions of a unit's tensors. tierd.Error: a type that is not supported."""
        return [
            define_tensor(
                entry.names,
                entry.parameter,
                self.groups.number_of(entry.parameter) if unit.is_trained else None,
                has_wide_gradients=unit.has_wide_gradients,
            )
            for entry in unit.entries
        ]


def open_as(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None,
    job: str,
    *,
    rank: int,
    world_size: int,
    stage: int,
    units: Chooser | None,
    options: dict[str, Any],
    moments: str = "fp32",
    optimizer_state_bytes: int | str | None = None,
    gradient_bytes: int | str | None = None,
    gradient_dtype: torch.dtype | None = None,
    random_states: bool = True,
    may_thaw: bool | Iterable[str] = False,
    early_updates: bool = False,
) -> Opening:
    """By the arguments of `initialize()`. optimizer None: AdamW of all parameters that require gradients, if there are any.

    TypeError, tierd.Error: one of them is not what it should be.
    """
    arguments.text("job", job)
    stage = arguments.integer("stage", stage)
    if not 0 <= stage <= 3:
        raise Error(errno.EINVAL, f"stage is {stage}: the stages of ZeRO are 0 to 3")
    if arguments.text("moments", moments) not in MOMENTS:
        raise Error(errno.EINVAL, f"moments={moments!r}: there are {', '.join(MOMENTS)}")
    random_states = arguments.flag("random_states", random_states)
    early_updates = arguments.flag("early_updates", early_updates)
    if gradient_bytes is not None:
        gradient_bytes = arguments.size("gradient_bytes", gradient_bytes)
    if optimizer_state_bytes is not None:
        optimizer_state_bytes = arguments.size("optimizer_state_bytes", optimizer_state_bytes)
    if next(model.parameters(), None) is None:
        raise Error(errno.EINVAL, "the model has no parameters, and a job has some: there is nothing to put on tierd")
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if optimizer is None:
        optimizer = [torch.optim.AdamW(trainable)] if trainable else []
    chosen = arguments.optimizers(optimizer)
    if trainable and not chosen:
        raise Error(errno.EINVAL, "optimizer is an empty list, and the model has parameters that require gradients")
    arguments.check_parameters(chosen, model)
    rule = Rule(kind_of(chosen), MOMENTS[moments])
    grouped = {id(item) for each in chosen for group in each.param_groups for item in group["params"]}
    thawing = thawable(model, may_thaw)
    late = [parameter for parameter in thawing if id(parameter) not in grouped]
    groups = Groups(chosen, late, is_local=rule.kind == _core.NONE)
    trained = grouped & {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    trained |= {id(parameter) for parameter in thawing}

    def is_trained(parameter: nn.Parameter) -> bool:
        return id(parameter) in trained

    if gradient_dtype is not None:
        check_gradient_dtype(gradient_dtype)
    local = None
    if rule.kind == _core.NONE:
        if early_updates:
            raise Error(
                errno.EINVAL,
                f"early_updates=True: {type(chosen[0]).__name__} runs in the trainer, and not before step()",
            )
        local = LocalOptimizers(chosen, model, is_trained, rank, world_size, optimizer_state_bytes)
    kept = Kept(model, with_random_states=random_states)
    scales_losses = options.get("loss_scale", 1.0) != 1.0 or options.get("loss_scale_interval", 0) > 0
    given = {
        "name": job,
        "rank": rank,
        "world_size": world_size,
        "stage": stage,
        "optimizer": rule.kind,
        "nonfinite": _core.NONFINITE_SKIP if scales_losses else _core.NONFINITE_REPORT,
        "blob_bytes": kept.bytes_needed(world_size) + (local.blob_bytes if local else 0),
        **options,
    }
    plans = choose(model, units, is_trained)
    for plan in plans:
        plan.gradient_dtype = gradient_dtype if plan.is_trained else None
    if "gradient_buffers" not in options or gradient_bytes is not None:
        given["gradient_bytes"] = room_for_gradients(plans) if gradient_bytes is None else gradient_bytes
    return Opening(plans, chosen, rule, local, kept, groups, scales_losses, early_updates, given)
