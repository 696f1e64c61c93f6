"""What the daemon keeps for the optimizer, in torch's layout: `optimizer.state_dict()` reads it, and
`optimizer.load_state_dict()` writes it."""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from tierd._core import Error
from tierd.torch.compat import to_dlpack
from tierd.torch.pages import rest
from tierd.torch.storage import Unit

if TYPE_CHECKING:
    from tierd.torch.job import TorchJob

States = dict[Any, dict[str, Any]]

# By the kind of optimizer: what torch calls the moments.
_MOMENTS = {
    "AdamW": ("exp_avg", "exp_avg_sq"),
    "Adam": ("exp_avg", "exp_avg_sq"),
    "SGD": ("momentum_buffer",),
    "Lion": ("exp_avg",),
}
# Beside them, of bf16 and fp16: the fp32 value of the parameter.
MASTER = "master"


class DaemonState(defaultdict[torch.Tensor, Any]):
    """`optimizer.state`: empty, as the state is the daemon's; but there is some, so nobody takes a step to have it made,
    as torch.distributed.checkpoint would."""

    def __bool__(self) -> bool:
        return True


def moments_of(kind: str, group: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the moments of a group of this kind of optimizer."""
    return () if kind == "SGD" and not group["momentum"] else _MOMENTS[kind]


def read(job: TorchJob, kind: str) -> States:
    """Copies of the state of each parameter that has been updated; tensors are fp32 on the processor, of its shape, and
    `step` is a scalar."""
    job.finish()
    return job.membership.until_it_stands(lambda: _read(job, kind))


def _read(job: TorchJob, kind: str) -> States:
    steps = _read_steps(job)
    found: States = {}
    reads: list[tuple[int, int, str, Any]] = []
    for unit, tensor, group in _trained(job):
        parameter = unit.parameters[tensor]
        step = steps[parameter]
        if not step:
            continue
        moments = moments_of(kind, group)
        state: dict[str, Any] = {"step": step.squeeze()} if kind != "SGD" else {}
        for name in (*moments, *((MASTER,) if parameter.dtype != torch.float32 else ())):
            state[name] = torch.empty(parameter.shape)
            reads.append((unit.index, tensor, name, to_dlpack(state[name])))
        if state:
            found[parameter] = state
    job.core.read_many(reads)
    return found


def _read_steps(job: TorchJob) -> dict[torch.Tensor, torch.Tensor]:
    """How often each parameter was updated; 0 of one without elements."""
    steps: dict[torch.Tensor, torch.Tensor] = {}
    for unit, tensor in job.trained():
        steps[unit.parameters[tensor]] = torch.zeros(1)
    places = [(unit, tensor) for unit, tensor in job.trained() if unit.parameters[tensor].numel()]
    job.core.read_many([(u.index, tensor, "step", to_dlpack(steps[u.parameters[tensor]])) for u, tensor in places])
    return steps


def _trained(job: TorchJob) -> Iterator[tuple[Unit, int, Mapping[str, Any]]]:
    """The parameters that have a group: their units, their places there, their groups."""
    groups = {id(parameter): group for group in job.param_groups for parameter in group["params"]}
    for unit, tensor in job.trained():
        group = groups.get(id(unit.parameters[tensor]))
        if group is not None:
            yield unit, tensor, group


def write(job: TorchJob, kind: str, states: Mapping[torch.Tensor, Mapping[str, Any]]) -> None:
    """Gives each parameter the state that it has here; one that has none begins anew. In `job.writing()`."""
    for unit, tensor, _ in _trained(job):
        state = states.get(unit.parameters[tensor]) or {}
        for name in _MOMENTS[kind] if job.has_moments else ():
            value = _value(unit, tensor, name, state.get(name))
            job.core.write_state(unit.index, tensor, name, _step_in(state), to_dlpack(value))
            rest(value)
        if MASTER in state and unit.parameters[tensor].dtype != torch.float32:
            value = _value(unit, tensor, MASTER, state[MASTER])
            job.core.write(unit.index, tensor, to_dlpack(value), is_master=True)


def check(kind: str, states: Mapping[Any, Mapping[str, Any]]) -> None:
    """tierd.Error: it is what another kind of optimizer keeps."""
    known = {"step", MASTER, *_MOMENTS[kind]}
    for state in states.values():
        # SGD has none before its first step, or without momentum.
        others = [name for name, value in state.items() if name not in known and isinstance(value, torch.Tensor)]
        if others:
            raise Error(
                errno.EINVAL,
                f"the checkpoint is of another optimizer: it has {', '.join(others)}, and {kind} keeps "
                f"{', '.join(_MOMENTS[kind])}",
            )


def _step_in(state: Mapping[str, Any]) -> int:
    """0: it was never updated. Of SGD torch keeps no number: only the first update differs from the others."""
    if "step" in state:
        return int(state["step"])
    return int(any(value is not None for value in state.values()))


def _value(unit: Unit, tensor: int, name: str, value: torch.Tensor | None) -> torch.Tensor:
    shape = unit.parameters[tensor].shape
    if value is None:
        return torch.zeros(shape)
    if value.shape != shape:
        raise Error(
            errno.EINVAL,
            f"{name} of {unit.name_of(tensor)} is of shape {list(value.shape)} in the checkpoint, and the parameter of "
            f"{list(shape)}: it is of another architecture",
        )
    return value.detach().to("cpu", torch.float32).contiguous()
