"""The groups of a job: which of them each parameter is in, and which group of an optimizer gives its rates.

A job keeps the groups with which it was opened. So a parameter that may be thawed, and is in no group of an optimizer yet,
has one for itself, and takes the rates of the group that it is added to. A parameter that is in another group of an optimizer
than before goes to that one of the job.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tierd import _core
from tierd._core import Error

Optimizer = torch.optim.Optimizer
Group = dict[str, Any]


def options_of(group: Group) -> dict[str, Any]:
    """What a group has beside its parameters."""
    return {key: value for key, value in group.items() if key != "params"}


class Groups:
    """Of one job. late: what is in no group yet. is_local: the optimizers run in the trainer, where their groups are."""

    def __init__(self, optimizers: Sequence[Optimizer], late: Sequence[nn.Parameter], *, is_local: bool):
        self._optimizers = optimizers
        self._is_local = is_local
        self._counts = [len(optimizer.param_groups) for optimizer in optimizers]
        # For each group of the job, the optimizer and its group that give the rates; None: none does yet.
        self._sources: list[tuple[int, int] | None] = [
            (i, k) for i, count in enumerate(self._counts) for k in range(count)
        ]
        self._of = {
            id(parameter): number
            for number, (i, k) in enumerate(source for source in self._sources if source)
            for parameter in optimizers[i].param_groups[k]["params"]
        }
        self._grouped = [item for each in optimizers for group in each.param_groups for item in group["params"]]
        for parameter in late:
            self._of[id(parameter)] = len(self._sources)
            self._sources.append(None)
        if late and is_local:
            kind = type(optimizers[0]).__name__
            raise Error(
                errno.EINVAL,
                f"may_thaw has {len(late)} parameters that are in no group of {kind}, which runs in the trainer: put them "
                "into a group before initialize(), with requires_grad False",
            )
        if len(self._sources) > _core.MAX_GROUPS and not is_local:
            raise Error(
                errno.EINVAL,
                f"{len(self._sources)} groups, of which {len(late)} are of parameters of may_thaw that are in no group of "
                f"the optimizer: a job has {_core.MAX_GROUPS} at most. Put such parameters into fewer groups before "
                "initialize(), with requires_grad False",
            )

    def has(self, parameter: torch.Tensor) -> bool:
        """Whether a group of an optimizer has the parameter."""
        number = self._of.get(id(parameter))
        return number is not None and self._sources[number] is not None

    def number_of(self, parameter: torch.Tensor) -> int:
        """The job's group of a parameter that has one."""
        return 0 if self._is_local else self._of[id(parameter)]

    def to_open(self) -> list[Group]:
        """The groups that the job is opened with, by their numbers."""
        has_momentum = any(optimizer.defaults.get("momentum") for optimizer in self._optimizers)
        return self._by_number(
            [optimizer.param_groups for optimizer in self._optimizers], {"momentum": 0.9 if has_momentum else 0.0}
        )

    def in_step(self, groups: Sequence[Sequence[Group]]) -> list[Group | None]:
        """The job's groups by their numbers, of those that each optimizer has in a step; None: none gives rates yet.
        tierd.Error: an optimizer has lost groups, or has others than by `add_param_group()`."""
        for optimizer, those, count in zip(self._optimizers, groups, self._counts, strict=True):
            if len(those) != count:
                raise Error(
                    errno.EINVAL,
                    f"{type(optimizer).__name__} has {len(those)} groups, and the job knows {count} of it: groups are added "
                    "by add_param_group(), and none can be taken away",
                )
        return self._by_number(groups, None)

    def numbers_in_step(self, groups: Sequence[Sequence[Group]]) -> dict[int, int]:
        """The job's group of each parameter that is in one, by identity, of the groups that each optimizer has in a step.
        tierd.Error: a parameter that requires gradients is in none any more."""
        if self._is_local:
            return {}
        first: dict[tuple[int, int], int] = {}
        for number, source in enumerate(self._sources):
            if source is not None:
                first.setdefault(source, number)
        numbers: dict[int, int] = {}
        for i, those in enumerate(groups):
            for k, group in enumerate(those):
                for parameter in group["params"]:
                    own = self._of.get(id(parameter))
                    is_there = own is not None and self._sources[own] == (i, k)
                    numbers[id(parameter)] = own if own is not None and is_there else first[i, k]
        for parameter in self._grouped:
            if id(parameter) not in numbers and parameter.requires_grad:
                raise Error(
                    errno.EINVAL,
                    f"a parameter {list(parameter.shape)} was taken out of its group of the optimizer, and is in no other one, "
                    "but the job trains it: put it into another group, or have it not require gradients before backward() "
                    "(requires_grad_(False))",
                )
        return numbers

    def place(self, numbers: dict[int, int]) -> None:
        """Has each parameter in the optimizer's group that gives the rates for this one of the job. By identity."""
        for i, optimizer in enumerate(self._optimizers):
            for k, group in enumerate(optimizer.param_groups):
                for parameter in [*group["params"]]:
                    source = self._sources[numbers[id(parameter)]] if id(parameter) in numbers else None
                    if source is not None and source != (i, k):
                        group["params"][:] = [own for own in group["params"] if own is not parameter]
                        self._optimizers[source[0]].param_groups[source[1]]["params"].append(parameter)

    def _by_number(self, groups: Sequence[Sequence[Group]], otherwise: Any) -> list[Any]:
        return [otherwise if source is None else groups[source[0]][source[1]] for source in self._sources]

    def add(self, optimizer: Optimizer, parameters: Sequence[torch.Tensor]) -> None:
        """The parameters, all of them late, are those of the optimizer's last group now. tierd.Error: one is not late."""
        for parameter in parameters:
            if self._of.get(id(parameter)) is None or self.has(parameter):
                kind, shape = type(optimizer).__name__, list(parameter.shape)
                raise Error(
                    errno.EINVAL,
                    f"a parameter {shape} is added to a group of {kind}, but the job has no room to train it, or it is in a "
                    "group already: name it in initialize(…, may_thaw=[…]) when a job begins, or put it into a group "
                    "before that",
                )
        (owner,) = (i for i, other in enumerate(self._optimizers) if other is optimizer)
        for parameter in parameters:
            self._sources[self._of[id(parameter)]] = owner, self._counts[owner]
            self._grouped.append(parameter)
        self._counts[owner] += 1
