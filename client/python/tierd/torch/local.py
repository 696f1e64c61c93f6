"""Optimizers that tierd does not have: they run in the trainer, over whole tensors in fp32.

The daemon sums, scales and clips gradients as for its own optimizers. Then each rank updates its part of the tensors,
which for that time are parameters with values and a gradient, as plain PyTorch has them, and writes them back. What such
an optimizer keeps stays in the trainer, and goes with each step to the job, as blobs that all ranks share: it comes back
with the step, also to another number of ranks.
"""

from __future__ import annotations

import copy
import errno
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tierd import _core
from tierd._core import Error, Job
from tierd.report import text_of_bytes
from tierd.torch.compat import plain_step, to_dlpack
from tierd.torch.kept import check_value, pack, unpack
from tierd.torch.storage import Unit, place_of

# How many keys ranks may share blobs under, as tierd_blob_set(3) has it.
KEYS = 16

Optimizer = torch.optim.Optimizer


@dataclass
class Tensor:
    """A parameter that is trained, and who does it."""

    name: str
    parameter: nn.Parameter
    optimizer: Optimizer
    group: dict[str, Any]
    state_bytes: int = 0

    @property
    def place(self) -> tuple[Unit, int]:
        found = place_of(self.parameter)
        assert found is not None
        return found


class LocalOptimizers:
    """The optimizers of one job. state_bytes: room for what they keep; None: what a trial says; 0: it is not kept."""

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        model: nn.Module,
        is_trained: Callable[[nn.Parameter], bool],
        rank: int,
        world_size: int,
        state_bytes: int | None,
    ):
        self._optimizers = optimizers
        self._steps = [plain_step(type(optimizer)) for optimizer in optimizers]
        # Torch's own look at one tensor after the other. Of another one nobody knows: it gets all of them, on rank 0.
        self._is_by_tensor = all(_is_of_torch(type(optimizer)) for optimizer in optimizers)
        self._rank, self._world_size = rank, world_size
        self._groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._tensors = list(_trained(optimizers, model, is_trained))
        parts = _divide(self._tensors, world_size if self._is_by_tensor else 1)
        self._own = parts[rank] if rank < len(parts) else []
        self._moved: list[dict[str, Any]] = [{} for _ in self._groups]  # what steps have changed of the groups
        self._there: set[tuple[int, int]] = set()  # what the job has of it: ranks and chunks
        self._has_kept = False
        for tensor, state in self._states(self._tensors):
            # Made beside the parameter, in its format; here it is beside the master.
            state |= {key: _wide(value, tensor.parameter.dtype) for key, value in state.items()}
        self._initial = {tensor.name: copy.deepcopy(state) for tensor, state in self._states(self._tensors)}
        self._can_try = state_bytes is None
        if state_bytes is None:
            self._try()
            state_bytes = sum(tensor.state_bytes for tensor in self._tensors)
        self.state_bytes = state_bytes

    @property
    def blob_bytes(self) -> int:
        """Room in the job, the same for each number of ranks."""
        return self.state_bytes and self.state_bytes + KEYS * 4096

    def say(self) -> None:
        """Tells where they run."""
        runs = f"{' and '.join(self._kinds())} {'runs' if len(self._optimizers) == 1 else 'run'} in the trainer"
        kept = f"up to {text_of_bytes(self.state_bytes)} of state are kept with each step"
        if self.state_bytes == 0:
            kept = "the state ends with the trainer"
        print(f"tierd: {runs}, on fp32 masters: {kept}", file=sys.stderr, flush=True)

    def _try(self) -> None:
        """Learns what is kept of each tensor. tierd.Error: more than a job has room for."""
        for tensor in self._tensors:
            tensor.state_bytes = len(pack(_trial(tensor, self._step_of(tensor.optimizer))))
        needed, most = sum(tensor.state_bytes for tensor in self._own), self._most_bytes()
        if needed > most:
            raise Error(errno.ENOSPC, self._too_much(needed, most))

    def _step_of(self, optimizer: Optimizer) -> Callable[[Optimizer], Any]:
        return self._steps[self._optimizers.index(optimizer)]

    def _most_bytes(self) -> int:
        return KEYS // (self._world_size if self._is_by_tensor else 1) * _core.MAX_BLOB_BYTES - 4096

    def _too_much(self, needed: int, most: int) -> str:
        return (
            f"{type(self._optimizers[0]).__name__} keeps {needed} bytes of state on rank {self._rank}, and a job of "
            f"{self._world_size} ranks keeps {max(most, 0)} bytes at most for each: take an optimizer that tierd has "
            "(AdamW, Adam, SGD, Lion), or say optimizer_state_bytes=0, so that it is not kept and ends with the trainer"
        )

    def _states(self, tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        for tensor in tensors:
            state = tensor.optimizer.state.get(tensor.parameter)
            if state:
                yield tensor, state

    # ---- A step

    def update(self, core: Job, groups: list[dict[str, Any]]) -> None:
        """Takes the gradients of a reduced step, and gives it new values of this rank's part. groups: as they are in it."""
        now = [dict(group) for group in self._groups]
        for group, then in zip(self._groups, groups, strict=True):
            group |= then
        if self._is_by_tensor:
            for unit in dict.fromkeys(tensor.place[0] for tensor in self._own):
                self._update(core, [tensor for tensor in self._own if tensor.place[0] is unit])
        elif self._own:
            self._update(core, self._own)
        for group, then, later, moved in zip(self._groups, groups, now, self._moved, strict=True):
            changed = {key: value for key, value in group.items() if key != "params" and value is not then.get(key)}
            group |= later | changed
            moved |= changed

    def _update(self, core: Job, tensors: list[Tensor]) -> None:
        lent: list[Tensor] = []
        values: list[torch.Tensor] = []
        try:
            for tensor in tensors:
                if _lend(core, tensor):
                    lent.append(tensor)
            for step, optimizer in zip(self._steps, self._optimizers, strict=True):
                self._step(step, optimizer, lent)
        finally:
            for tensor in lent:
                unit, index = tensor.place
                values.append(unit.take_back(index))
        for tensor, value in zip(lent, values, strict=True):
            unit, index = tensor.place
            core.write(unit.index, index, to_dlpack(value), is_master=True)

    def _step(self, step: Callable[[Optimizer], Any], optimizer: Optimizer, lent: list[Tensor]) -> None:
        if not self._is_by_tensor:
            step(optimizer)
            return
        here = {id(tensor.parameter) for tensor in lent}
        groups = optimizer.param_groups
        whole = [group["params"] for group in groups]
        try:
            for group in groups:
                group["params"] = [parameter for parameter in group["params"] if id(parameter) in here]
            optimizer.param_groups = [group for group in groups if group["params"]]
            step(optimizer)
        finally:
            optimizer.param_groups = groups
            for group, parameters in zip(groups, whole, strict=True):
                group["params"] = parameters

    # ---- Torch's dictionaries of states

    def whole_state(self, core: Job, optimizer: Optimizer) -> defaultdict[torch.Tensor, Any]:
        """What an optimizer keeps of all tensors, after the last applied step. tierd.Error: other ranks' is not kept."""
        if self._world_size == 1:
            return optimizer.state
        if self.state_bytes == 0:
            raise Error(errno.ENOTSUP, "each rank has the state of its own tensors: optimizer_state_bytes=0 keeps none")
        states = {name: state for kept in self._read(core) for name, state in kept["tensors"].items()}
        states |= {tensor.name: state for tensor, state in self._states(self._own)}
        mine = (tensor for tensor in self._tensors if tensor.optimizer is optimizer and tensor.name in states)
        return defaultdict(dict, {tensor.parameter: states[tensor.name] for tensor in mine})

    def take_loaded(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        """After torch has loaded it, in the formats of parameters: here they have those of masters. tierd.Error: its step
        cannot go on with it."""
        numbers = (number for group in state_dict["param_groups"] for number in group["params"])
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        for number, parameter in zip(numbers, parameters, strict=True):
            for key, value in state_dict["state"].get(number, {}).items():
                if isinstance(value, torch.Tensor):
                    dtype = torch.float32 if value.is_floating_point() else value.dtype
                    optimizer.state[parameter][key] = value.detach().to("cpu", dtype, copy=True)
        if self._can_try:
            self._try_loaded(optimizer)
        self._has_kept = False

    def _try_loaded(self, optimizer: Optimizer) -> None:
        """Of each group, and each set of what there is of a tensor, the smallest one."""
        one_of: dict[tuple[object, ...], Tensor] = {}
        mine = (tensor for tensor in self._tensors if tensor.optimizer is optimizer)
        for tensor in sorted(mine, key=lambda tensor: tensor.parameter.numel()):
            one_of.setdefault((id(tensor.group), *sorted(optimizer.state.get(tensor.parameter, {}))), tensor)
        for tensor in one_of.values():
            try:
                _trial(tensor, self._step_of(optimizer))
            except Error as error:
                raise self.wrong_kind(optimizer, error.__cause__) from error

    @staticmethod
    def wrong_kind(optimizer: Optimizer, error: BaseException | None) -> Error:
        """The optimizer does not find in a checkpoint what it keeps."""
        return Error(
            errno.EINVAL,
            f"{type(optimizer).__name__} cannot go on with the checkpoint, which is of another optimizer, or of another "
            f"version of it ({error!r})",
        )

    # ---- What is kept

    def keep_first(self, core: Job) -> None:
        """Before the first step: a step that is skipped writes nothing, and what was there before comes back, too."""
        if not self._has_kept:
            self.keep(core)

    def keep(self, core: Job) -> None:
        """Gives the job what is there now, with the step that is closed next, or under way."""
        if self.state_bytes == 0 or not self._own:
            return
        states = {tensor.name: dict(state) for tensor, state in self._states(self._own)}
        check_value(states, f"the state of {type(self._optimizers[0]).__name__}")
        check_value(self._moved, "what its step changes of its groups")
        packed = memoryview(pack({"kinds": self._kinds(), "tensors": states, "groups": self._moved}))
        if len(packed) > self._most_bytes():
            raise Error(errno.ENOSPC, self._too_much(len(packed), self._most_bytes()))
        size = _core.MAX_BLOB_BYTES
        for chunk, first in enumerate(range(0, len(packed), size)):
            core.blob_set(_key(self._rank, chunk), packed[first : first + size], is_shared=True)
        chunks = -(-len(packed) // size)
        for rank, chunk in self._there:
            # There were more ranks, or more bytes, than now.
            is_own = rank == self._rank and chunk >= chunks
            if is_own or (self._rank == 0 and rank >= self._world_size):
                core.blob_delete(_key(rank, chunk), is_shared=True)
        self._there = {(self._rank, chunk) for chunk in range(chunks)}
        self._has_kept = True

    def restore(self, core: Job, step: int) -> None:
        """Takes everything as it was after that step, at which the job stands."""
        self._has_kept, self._there = False, set()
        for optimizer in self._optimizers:
            optimizer.state.clear()
        states = self._kept(core, step) if self.state_bytes else {}
        if step == 0 or self.state_bytes == 0:
            states = copy.deepcopy(self._initial) | states
        if step > 0 and self.state_bytes == 0:
            print(f"tierd: the optimizer's state begins anew at step {step}", file=sys.stderr, flush=True)
        for tensor in self._own:
            if tensor.name in states:
                tensor.optimizer.state[tensor.parameter] = states[tensor.name]

    def _kept(self, core: Job, step: int) -> dict[str, dict[str, Any]]:
        """The states that the job has, by the names of tensors; groups are set."""
        states: dict[str, dict[str, Any]] = {}
        for kept in self._read(core):
            if kept["kinds"] != self._kinds() or len(kept["groups"]) != len(self._groups):
                kinds = f"{' and '.join(kept['kinds'])} with {len(kept['groups'])} groups"
                raise Error(errno.EINVAL, f"the job's optimizer state is of {kinds}: go on with that")
            states |= kept["tensors"]
            for group, moved in zip(self._groups, kept["groups"], strict=True):
                group |= moved
        if step > 0 and not self._there:
            raise Error(
                errno.EINVAL,
                f"the job is at step {step}, and has no state of {self._kinds()[0]}, which was not kept: say "
                "optimizer_state_bytes=0 to begin with none",
            )
        return states

    def _read(self, core: Job) -> Iterator[dict[str, Any]]:
        """What each rank has given."""
        for rank in range(KEYS):
            chunks: list[bytes] = []
            while (chunk := core.blob_get(_key(rank, len(chunks)), is_shared=True)) is not None:
                self._there.add((rank, len(chunks)))
                chunks.append(chunk)
            if not chunks:
                return
            yield unpack(b"".join(chunks), "the optimizer's state")

    def _kinds(self) -> list[str]:
        return [type(optimizer).__name__ for optimizer in self._optimizers]


def _key(rank: int, chunk: int) -> str:
    return f"tierd.optimizer.{rank}.{chunk}"


def _is_of_torch(kind: type[Optimizer]) -> bool:
    return kind.__module__.split(".")[:2] == ["torch", "optim"]


def _trained(
    optimizers: Sequence[Optimizer], model: nn.Module, is_trained: Callable[[nn.Parameter], bool]
) -> Iterator[Tensor]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if is_trained(parameter):
                    yield Tensor(names[id(parameter)], parameter, optimizer, group)


def _divide(tensors: list[Tensor], world_size: int) -> list[list[Tensor]]:
    """The tensors of each rank: the largest first, each to the rank that has the fewest elements."""
    parts: list[list[Tensor]] = [[] for _ in range(world_size)]
    loads = [0] * world_size
    for tensor in sorted(tensors, key=lambda tensor: -tensor.parameter.numel()):
        rank = loads.index(min(loads))
        loads[rank] += tensor.parameter.numel()
        parts[rank].append(tensor)
    return parts


def _lend(core: Job, tensor: Tensor) -> bool:
    """Makes a parameter of it that has its master and the gradient. False: it has no gradient in this step."""
    unit, index = tensor.place
    gradient = torch.empty(tensor.parameter.shape, dtype=torch.float32, device="cpu")
    value = torch.empty_like(gradient)
    try:
        core.read(unit.index, index, "gradient", to_dlpack(gradient))
    except Error as error:
        if error.errno != errno.ENODATA:
            raise
        return False
    core.read(unit.index, index, "master", to_dlpack(value))
    unit.lend(index, value, gradient)
    return True


def _wide(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.float().cpu() if value.dtype == dtype else value.cpu()


def copy_over(optimizer: Optimizer, group: dict[str, Any], value: nn.Parameter) -> Optimizer:
    """A copy of the optimizer that has one of its groups, and in it one parameter, without state."""
    # Parameters are not copied with what refers to them.
    memo: dict[int, Any] = {id(item): item for each in optimizer.param_groups for item in each["params"]}
    memo |= {id(optimizer): optimizer, id(optimizer.state): None, id(optimizer.param_groups): None}
    job = vars(optimizer).get("tierd_job")
    memo[id(job)] = job
    made = object.__new__(type(optimizer))
    vars(made).update(copy.deepcopy(vars(optimizer), memo))
    made.state = defaultdict(dict)
    made.param_groups = [{**copy.deepcopy(group, memo), "params": [value]}]
    return made


def _trial(tensor: Tensor, step: Callable[[Optimizer], Any]) -> dict[str, Any]:
    """What the optimizer keeps of a tensor: that of a step of a copy of it, over zeros."""
    optimizer, kind = tensor.optimizer, type(tensor.optimizer)
    value = nn.Parameter(torch.zeros(tensor.parameter.shape))
    value.grad = torch.zeros_like(value)
    try:
        trial = copy_over(optimizer, tensor.group, value)
        if tensor.parameter in optimizer.state:
            trial.state[value] = copy.deepcopy(optimizer.state[tensor.parameter])
        with torch.random.fork_rng(devices=[]):
            step(trial)
    except Exception as error:
        raise Error(
            errno.ENOTSUP,
            f"{kind.__name__} cannot be tried on a tensor of zeros like {tensor.name} ({error!r}): say how much it "
            "keeps by optimizer_state_bytes=",
        ) from error
    return dict(trial.state.get(value, {}))
