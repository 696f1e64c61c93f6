"""An optimizer of torch, translated: its groups become the job's, its step the daemon's.

The object stays the same and so does its list of groups, so schedulers, callbacks and whoever else holds it go on
working; its class becomes one whose `step` closes the job's step instead of updating parameters in the trainer.
"""

from __future__ import annotations

import errno
import functools
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tierd import _core
from tierd._core import Error
from tierd.torch import optimizer_state

if TYPE_CHECKING:
    from tierd.torch.job import TorchJob

# Options of a group that tierd has no counterpart for, and the only value with which the optimizer does the same.
_PLAIN = {"amsgrad": False, "maximize": False, "differentiable": False}


def _adam(group: dict[str, Any]) -> dict[str, Any]:
    return {"beta1": group["betas"][0], "beta2": group["betas"][1], "epsilon": group["eps"]}


def _sgd(group: dict[str, Any]) -> dict[str, Any]:
    return {key: group[key] for key in ("momentum", "dampening", "nesterov")}


def _lion(group: dict[str, Any]) -> dict[str, Any]:
    return {"beta1": group["betas"][0], "beta2": group["betas"][1]}


# By the names of classes, since Lion is in no torch.
_KINDS: dict[str, tuple[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "AdamW": (_core.ADAMW, _adam),
    "Adam": (_core.ADAM, _adam),
    "SGD": (_core.SGD, _sgd),
    "Lion": (_core.LION, _lion),
}


def kind_of(optimizer: torch.optim.Optimizer) -> int:
    """The daemon's optimizer that does what this one does. tierd.Error: there is none, or not with these options."""
    name = type(optimizer).__name__
    if name not in _KINDS:
        raise Error(errno.ENOTSUP, f"tierd has no {name}: use AdamW, Adam, SGD or Lion")
    for i, group in enumerate(optimizer.param_groups):
        for option, plain in _PLAIN.items():
            if group.get(option, plain) != plain:
                raise Error(errno.ENOTSUP, f"tierd's {name} has no {option} (parameter group {i}): leave it out")
    if name == "Adam" and any(group.get("decoupled_weight_decay") for group in optimizer.param_groups):
        return _core.ADAMW
    return _KINDS[name][0]


def groups_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The groups as they are now, with the whole learning rate in each."""
    options = _KINDS[_name_of(optimizer)][1]
    return [
        {"learning_rate": float(group["lr"]), "weight_decay": group["weight_decay"], **options(group)}
        for group in optimizer.param_groups
    ]


def groups_to_open(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """What of the groups a job is opened with: whether there is momentum, which is state. All else comes with each step."""
    return [{"momentum": 0.9 if group.get("momentum") else 0.0} for group in optimizer.param_groups]


def _name_of(optimizer: torch.optim.Optimizer) -> str:
    kinds = (kind.__name__ for kind in type(optimizer).__mro__)
    return next(name for name in kinds if name in _KINDS)


def translate(optimizer: torch.optim.Optimizer, job: TorchJob) -> None:
    """Makes the optimizer's steps those of the job."""
    wrapped = optimizer.__dict__.pop("step", None)
    optimizer.__class__ = _translated(type(optimizer))  # type: ignore[arg-type]
    optimizer._patch_step_function()  # hooks of users and the profiler's range, as for every class of optimizers
    optimizer.tierd_job = job  # type: ignore[attr-defined]
    optimizer.state = optimizer_state.DaemonState(dict)
    if wrapped is not None:
        # A scheduler that was there before counts the steps by a wrapper of the method.
        _count_for_schedulers(optimizer)


def _count_for_schedulers(optimizer: torch.optim.Optimizer) -> None:
    step = optimizer.step

    @functools.wraps(step)
    def counted(*args: Any, **kwargs: Any) -> Any:
        optimizer._opt_called = True  # type: ignore[attr-defined]
        return step(*args, **kwargs)

    counted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = counted  # type: ignore[method-assign]


@functools.cache
def _translated(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    return type(kind.__name__, (_Translated, kind), {"__module__": kind.__module__})


class _Translated(torch.optim.Optimizer):
    """What is common to translated optimizers."""

    tierd_job: TorchJob

    def state_dict(self) -> dict[str, Any]:
        """As torch's, with copies of the moments, of float32: any rank may call it, and they have to fit in memory.

        bfloat16 and float16 parameters also have `master`, their float32 values.
        """
        own, self.state = self.state, defaultdict(dict, optimizer_state.read(self.tierd_job, _name_of(self)))
        try:
            return super().state_dict()
        finally:
            self.state = own

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, between two steps: all ranks call it, and the moments that rank 0 gives count.

        A model's values come first, by its own load_state_dict(). tierd.Error: it is of another optimizer or another
        architecture; the state cannot be stored; a rank was lost. Everything is then as it was, on all ranks.
        ValueError: it has other groups.
        """
        with self.tierd_job.writing() as is_writer:
            groups = self._groups_in(state_dict)
            states = self._states_in(state_dict)
            if is_writer:
                optimizer_state.write(self.tierd_job, _name_of(self), states)
        for group, loaded in zip(self.param_groups, groups, strict=True):
            group.clear()
            group.update(loaded)

    def _groups_in(self, state_dict: dict[str, Any]) -> list[dict[str, Any]]:
        """The groups as torch loads them; the optimizer stays as it is."""
        before = dict(self.__dict__)
        try:
            super().load_state_dict({**state_dict, "state": {}})
            kind_of(self)
            return self.param_groups
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)

    def _states_in(self, state_dict: dict[str, Any]) -> dict[torch.Tensor, dict[str, Any]]:
        optimizer_state.check(_name_of(self), state_dict["state"])
        numbers = (number for group in state_dict["param_groups"] for number in group["params"])
        parameters = (parameter for group in self.param_groups for parameter in group["params"])
        return {
            parameter: state_dict["state"].get(number, {})
            for number, parameter in zip(numbers, parameters, strict=True)
        }

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Closes the step. It returns at once; each unit's next gather waits for its update.

        tierd.Error: nothing was pushed (EINVAL); memory of a trained unit is still viewed (EBUSY, all holders named);
        the last step had gradients that are not finite (EDOM).
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.tierd_job.step(groups_of(self))
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise Error(
            errno.ENOTSUP,
            "add_param_group() after tierd.initialize(): the job has the groups with which it was opened; add it before",
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """After a step nothing is left to be zeroed. Before it, what was pushed is dropped; all ranks have to do so."""
        self.tierd_job.drop()
        super().zero_grad(set_to_none)
