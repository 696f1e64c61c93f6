"""Optimizers of torch in a job: their steps are the job's.

An optimizer that tierd has is translated: its groups become the job's. Another one runs in the trainer (local.py). The
objects stay the same and so do their lists of groups, so schedulers, callbacks and whoever else holds them go on working;
their class becomes one whose `step` closes the job's step.
"""

from __future__ import annotations

import errno
import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from tierd import _core
from tierd._core import Error
from tierd.torch import optimizer_state
from tierd.torch.compat import plain_step
from tierd.torch.local import copy_over

if TYPE_CHECKING:
    from tierd.torch.job import TorchJob

Optimizer = torch.optim.Optimizer

# Options of a group with which an optimizer does something else than tierd's of its name.
_OTHERS = ("amsgrad", "maximize")

# Every Lion's groups have these, whoever has written it; one with more may be another formula.
_LION = {"params", "lr", "betas", "weight_decay", "initial_lr", "maximize", "foreach", "capturable", "differentiable"}


def _adam(group: dict[str, Any]) -> dict[str, Any]:
    return {"beta1": group["betas"][0], "beta2": group["betas"][1], "epsilon": group["eps"]}


def _sgd(group: dict[str, Any]) -> dict[str, Any]:
    return {key: group[key] for key in ("momentum", "dampening", "nesterov")}


def _lion(group: dict[str, Any]) -> dict[str, Any]:
    return {"beta1": group["betas"][0], "beta2": group["betas"][1]}


_NAMES = {_core.ADAMW: "AdamW", _core.ADAM: "Adam", _core.SGD: "SGD", _core.LION: "Lion"}
_OPTIONS = {_core.ADAMW: _adam, _core.ADAM: _adam, _core.SGD: _sgd, _core.LION: _lion}


def kind_of(optimizers: Sequence[Optimizer]) -> int:
    """The daemon's optimizer that does what these do; NONE: it has none. tierd.Error: nobody can do it.

    Where nothing is trained it is SGD, which keeps nothing.
    """
    if not optimizers:
        return _core.SGD
    kinds = {_kind_of(optimizer) for optimizer in optimizers}
    return kinds.pop() if len(kinds) == 1 else _core.NONE


def _kind_of(optimizer: Optimizer) -> int:
    kind, groups = _plain_class(optimizer), optimizer.param_groups
    if kind in (torch.optim.LBFGS, torch.optim.SparseAdam):
        wants = "calls its closure several times" if kind is torch.optim.LBFGS else "wants sparse gradients"
        raise Error(errno.ENOTSUP, f"{kind.__name__} {wants}, which tierd does not do: take another optimizer")
    for name, inner in vars(optimizer).items():
        if isinstance(inner, Optimizer):
            raise Error(
                errno.ENOTSUP,
                f"{kind.__name__} steps through another optimizer ({name}, {type(inner).__name__}), whose state would be "
                "kept nowhere: give initialize() that one, or a class that does all by itself",
            )
    if any(group.get("differentiable") for group in groups):
        raise Error(errno.ENOTSUP, f"{kind.__name__} with differentiable=True: no graph goes through a step of tierd")
    if any(group.get(option) for group in groups for option in _OTHERS):
        return _core.NONE
    if kind is torch.optim.AdamW or (
        kind is torch.optim.Adam and any(group.get("decoupled_weight_decay") for group in groups)
    ):
        return _core.ADAMW
    if kind is torch.optim.Adam:
        return _core.ADAM
    if kind is torch.optim.SGD:
        return _core.SGD
    # It is in no torch, so it is one by its name, and by what it does.
    is_lion = kind.__name__ == "Lion" and all(group.keys() <= _LION for group in groups) and _steps_as_lion(optimizer)
    return _core.LION if is_lion else _core.NONE


def _steps_as_lion(optimizer: Optimizer) -> bool:
    """Whether its formula is Lion's, by a trial: options that are in no group, such as lion-pytorch's
    decoupled_weight_decay, make another one of it."""
    group = optimizer.param_groups[0]
    learning_rate, (beta1, beta2) = 0.25, group["betas"]
    value = torch.nn.Parameter(torch.linspace(-2.0, 2.0, 16))
    expected, moments = value.detach().clone(), torch.zeros(16)
    random = torch.Generator().manual_seed(1)
    try:
        trial = copy_over(optimizer, {**group, "lr": learning_rate}, value)
        for step in range(8):
            value.grad = torch.randn(16, generator=random) * 4.0**-step
            expected *= 1.0 - learning_rate * group["weight_decay"]
            expected -= learning_rate * moments.lerp(value.grad, 1.0 - beta1).sign()
            moments.lerp_(value.grad, 1.0 - beta2)
            plain_step(type(optimizer))(trial)
    except Exception:  # noqa: BLE001 what they raise is told by the trial in the trainer
        return False
    return torch.allclose(value, expected, rtol=1e-4, atol=1e-6)


def _plain_class(optimizer: Optimizer) -> type[Optimizer]:
    """Its class before `translate()`."""
    kinds = (kind for kind in type(optimizer).__mro__ if issubclass(kind, Optimizer))
    return next(kind for kind in kinds if not issubclass(kind, _Stepping))


@dataclass(frozen=True)
class Rule:
    """The optimizer that a job has: the daemon's kind, and the format in which it keeps its state."""

    kind: int
    moments: int

    def groups_to_open(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What of the groups a job is opened with: whether there is momentum, which is state, and its format. All else
        comes with each step."""
        if self.kind == _core.NONE:
            return []
        return [{"momentum": 0.9 if group.get("momentum") else 0.0, "moments": self.moments} for group in groups]

    def groups(self, groups: list[dict[str, Any] | None]) -> list[dict[str, Any]] | None:
        """The groups as they are now, with the whole learning rate in each; None: the daemon looks at none.

        None in them: nothing of that group has a gradient.
        """
        if self.kind == _core.NONE:
            return None
        options = _OPTIONS[self.kind]
        return [
            {
                "learning_rate": float(group["lr"]),
                "weight_decay": group["weight_decay"],
                "moments": self.moments,
                **options(group),
            }
            if group
            else {"moments": self.moments}
            for group in groups
        ]


def translate(optimizer: Optimizer, job: TorchJob) -> None:
    """Makes the optimizer's steps those of the job."""
    wrapped = optimizer.__dict__.pop("step", None)
    optimizer.__class__ = _translated(type(optimizer), _Translated if job.local is None else _Local)  # type: ignore[arg-type]
    optimizer._patch_step_function()  # hooks of users and the profiler's range, as for every class of optimizers
    optimizer.tierd_job = job  # type: ignore[attr-defined]
    if job.local is None:
        optimizer.state = optimizer_state.DaemonState(dict)
    if wrapped is not None:
        # A scheduler that was there before counts the steps by a wrapper of the method.
        _count_for_schedulers(optimizer)


def _count_for_schedulers(optimizer: Optimizer) -> None:
    step = optimizer.step

    @functools.wraps(step)
    def counted(*args: Any, **kwargs: Any) -> Any:
        optimizer._opt_called = True  # type: ignore[attr-defined]
        return step(*args, **kwargs)

    counted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = counted  # type: ignore[method-assign]


def _fill(groups: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    for group, other in zip(groups, others, strict=True):
        group.clear()
        group.update(other)


@functools.cache
def _translated(kind: type[Optimizer], how: type[_Stepping]) -> type[Optimizer]:
    return type(kind.__name__, (how, kind), {"__module__": kind.__module__})


class _Stepping(Optimizer):
    """What is common to optimizers whose steps are a job's."""

    tierd_job: TorchJob

    # GradScaler leaves scaling and skipping to such, and tells the scale by the attribute grad_scale.
    _step_supports_amp_scaling = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Closes the step. It returns at once; each unit's next gather waits for its update.

        Where the optimizer runs in the trainer it does so here. Of several optimizers the last one closes the step.

        tierd.Error: nothing was pushed (EINVAL); memory of a trained unit is still viewed (EBUSY, all holders named);
        the last step had gradients that are not finite (EDOM), and no forward pass has told it.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scale = getattr(self, "grad_scale", None)
        self.tierd_job.step(self, None if scale is None else float(scale))
        return loss

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Error(
            errno.ENOTSUP,
            f"a {type(self).__name__} on tierd cannot be pickled or copied, since its steps are those of job "
            f'"{self.tierd_job.name}": save optimizer.state_dict(), and that of a scheduler, which has the optimizer in it',
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's, of parameters that the job has room for: initialize(…, may_thaw=…). All ranks do so.

        tierd.Error: the job has no room to train one of them; the optimizer runs in the trainer. Nothing is added then.
        """
        super().add_param_group(param_group)
        try:
            self.tierd_job.add_group(self)
        except BaseException:
            self.param_groups.pop()
            raise

    def zero_grad(self, set_to_none: bool = True) -> None:
        """After a step nothing is left to be zeroed. Before it, what was pushed is given up; all ranks have to do so, and
        with several optimizers all of them."""
        self.tierd_job.give_up(parameter for group in self.param_groups for parameter in group["params"])
        super().zero_grad(set_to_none)


class _Translated(_Stepping):
    """One whose state is the daemon's."""

    def state_dict(self) -> dict[str, Any]:
        """As torch's, with copies of the moments, of float32: any rank may call it, and they have to fit in memory.

        bfloat16 and float16 parameters also have `master`, their float32 values.
        """
        states = optimizer_state.read(self.tierd_job, _NAMES[self.tierd_job.rule.kind])
        own, self.state = self.state, defaultdict(dict, states)
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
        kind = _NAMES[self.tierd_job.rule.kind]
        with self.tierd_job.writing() as is_writer:
            groups = self._groups_in(state_dict)
            states = self._states_in(state_dict)
            optimizer_state.check(kind, state_dict["state"])
            if is_writer:
                optimizer_state.write(self.tierd_job, kind, states)
        _fill(self.param_groups, groups)

    def _groups_in(self, state_dict: dict[str, Any]) -> list[dict[str, Any]]:
        """The groups as torch loads them; the optimizer stays as it is."""
        before = dict(self.__dict__)
        try:
            super().load_state_dict({**state_dict, "state": {}})
            self._check_groups()
            if _kind_of(self) != self.tierd_job.rule.kind:
                raise Error(
                    errno.ENOTSUP,
                    f"tierd's {type(self).__name__} does not do what the checkpoint's groups say (amsgrad, maximize)",
                )
            return self.param_groups
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)

    def _check_groups(self) -> None:
        try:
            self.tierd_job.rule.groups(list(self.param_groups))
        except KeyError as error:
            raise Error(
                errno.EINVAL,
                f"the checkpoint is of another optimizer: its groups have no {error}, which {type(self).__name__} needs",
            ) from None

    def _states_in(self, state_dict: dict[str, Any]) -> dict[torch.Tensor, dict[str, Any]]:
        numbers = (number for group in state_dict["param_groups"] for number in group["params"])
        parameters = (parameter for group in self.param_groups for parameter in group["params"])
        return {
            parameter: state_dict["state"].get(number, {})
            for number, parameter in zip(numbers, parameters, strict=True)
        }


class _Local(_Stepping):
    """One that runs in the trainer, where its state is."""

    def state_dict(self) -> dict[str, Any]:
        """As torch's, of all tensors, whichever rank has them: any rank may call it, and they have to fit in memory."""
        job, own = self.tierd_job, self.state
        assert job.local is not None
        job.finish()
        self.state = job.local.whole_state(job.core, self)
        try:
            return super().state_dict()
        finally:
            self.state = own

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, between two steps; all ranks call it. What is loaded is kept with the job from the next step on.

        tierd.Error: its step cannot go on with it, as it is of another optimizer; everything is then as it was.
        """
        local = self.tierd_job.local
        assert local is not None
        groups, state, kept = self.param_groups, self.state, [dict(group) for group in self.param_groups]
        try:
            super().load_state_dict(state_dict)
            # The dicts stay the same, as whoever holds them expects.
            _fill(groups, self.param_groups)
            self.param_groups = groups
            local.take_loaded(self, state_dict)
        except BaseException as error:
            self.param_groups, self.state = groups, state
            _fill(groups, kept)
            if isinstance(error, KeyError):  # torch's classes look into what they load
                raise local.wrong_kind(self, error) from error
            raise
