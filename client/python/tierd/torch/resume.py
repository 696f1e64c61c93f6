"""A training loop that goes on where the job stands: after a restart of the script, of a rank, or of the daemon."""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from tierd._core import Error
from tierd.torch.arguments import wrong_type
from tierd.torch.groups import options_of
from tierd.torch.kept import pack, random_states, set_random_states, unpack

if TYPE_CHECKING:
    from tierd.torch.job import TorchJob

Batch = TypeVar("Batch")

# The key of tierd.state under which the position is.
KEY = "tierd.position"


class Stateful(Protocol):
    """Something that has a state, as schedulers of learning rates do."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


def _state_after(item: Stateful) -> dict[str, Any]:
    """An object's state with the step that is closed now. A GradScaler is updated after it, and only a step without an
    overflow counts."""
    state = item.state_dict()
    if isinstance(item, torch.amp.GradScaler) and state:
        state["_growth_tracker"] += 1
        if state["_growth_tracker"] == state["growth_interval"]:
            state |= {"_growth_tracker": 0, "scale": state["scale"] * state["growth_factor"]}
    return state


@dataclass
class Place:
    """Where in the data the trainer is."""

    number: int  # of the pass over the data
    count: int  # of its batches that were handed out
    start: bytes  # random states before it, from which the loader makes its order


class Position:
    """The place of a job's trainer in its data, kept with each step."""

    def __init__(self, job: TorchJob):
        self._job = job
        self._passes = 0  # that the script has begun
        self._is_elsewhere = False  # the job was rolled back, and no pass has begun since
        self._at_first: dict[str, Any] | None = None  # of groups and objects, before any step
        self._place: Place | None = None
        self._first: Place | None = None
        self._objects: tuple[Stateful, ...] = ()
        self._steps_at_batch: list[int] = []
        self._steps_at_step: list[int] = []
        self._steps_after: list[int] = []

    def batches(self, loader: Iterable[Batch], objects: tuple[Stateful, ...]) -> Iterator[Batch]:
        """What `tierd.torch.resumable()` gives. What is wrong with the arguments it says at once."""
        _check(loader, objects)
        return self._batches(loader, objects)

    def _batches(self, loader: Iterable[Batch], objects: tuple[Stateful, ...]) -> Iterator[Batch]:
        membership = self._job.membership
        last, self._passes = self._passes, self._passes + 1
        self._objects = objects
        if last == 0:
            self._at_first = copy.deepcopy(self._options(lambda item: item.state_dict()))
        membership.can_go_back = membership.is_in_loop = True
        try:
            yield from self._passes_up_to(last, loader)
        finally:
            membership.is_in_loop = False

    def _passes_up_to(self, last: int, loader: Iterable[Batch]) -> Iterator[Batch]:
        membership = self._job.membership
        number = last
        frozen = self._job.frozen()
        members = [(group["params"], [*group["params"]]) for group in self._job.param_groups]
        if membership.is_void or self._is_elsewhere:
            # The pass that was left in the middle may have been an earlier one.
            self._restore()
            number = self._stands_at(0)
        if self._stands_at(last) > last:
            return
        if self._place is None:
            # Not before: what comes between passes that are skipped comes again, such as a group that is added.
            self._restore()
            # The script has drawn the same random numbers since initialize() in its first start, before the job's step.
            self._job.kept.restore_random(self._job.core)
        while number <= last:
            yield from self._pass(loader, number)
            if membership.is_void:
                self._restore()
                number = self._stands_at(0)
                continue
            number += 1
            if number == last:
                # It was an earlier pass: what the caller has frozen, thawed and moved since then does not come again.
                self._job.freeze(frozen)
                for parameters, then in members:
                    parameters[:] = then

    def _stands_at(self, otherwise: int) -> int:
        """The pass in which the job's step lies."""
        kept = self._job.kept.state.get(KEY)
        return otherwise if kept is None else int(kept["number"])

    def _pass(self, loader: Iterable[Batch], number: int) -> Iterator[Batch]:
        """The rest of a pass, from the job's step on."""
        kept = self._job.kept.state.get(KEY)
        now = pack(random_states())
        place = Place(number, 0, now)
        if kept is not None and kept["number"] == number:
            place = Place(number, kept["count"], kept["start"])
        elif kept is None and self._first is not None and self._first.number == number:
            place = Place(number, 0, self._first.start)
        self._first = self._first or Place(number, 0, place.start)
        set_random_states(unpack(place.start, KEY))
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(
                number
            )  # of accelerate: its order is made of that, and it may not have seen earlier passes
        batches = iter(loader)
        for _ in range(place.count):
            next(batches, None)
        if place.count:
            set_random_states(unpack(now, KEY))
        self._place = place
        for batch in batches:
            place.count += 1
            self._steps_at_batch = self._scheduler_steps()
            yield batch
            self._steps_after = [
                now - then for now, then in zip(self._scheduler_steps(), self._steps_at_step, strict=False)
            ]
            if self._job.membership.is_void:
                return

    # ---- With each step

    def keep(self) -> None:
        """Puts the place, the groups' options and the objects' states into what is kept with the next step."""
        if self._place is None:
            return
        self._steps_at_step = self._scheduler_steps()
        place = self._place
        self._job.kept.state[KEY] = {
            "number": place.number,
            "count": place.count,
            "start": place.start,
            **self._options(_state_after),
            # A scheduler is stepped after its optimizer, and what comes after the job's step is not kept with it.
            "steps_after": self._steps_after or self._steps_left(),
        }

    def _options(self, state_of: Callable[[Stateful], dict[str, Any]]) -> dict[str, Any]:
        return {
            "groups": [[options_of(group) for group in optimizer.param_groups] for optimizer in self._job.optimizers],
            "frozen": self._job.frozen(),
            "objects": [state_of(item) for item in self._objects],
        }

    def _scheduler_steps(self) -> list[int]:
        return [item.last_epoch for item in self._schedulers()]

    def _steps_left(self) -> list[int]:
        """In the first step: one of each, unless it came already, as with several optimizers."""
        before = self._steps_at_batch
        return [max(0, 1 - (now - then)) for now, then in zip(self._steps_at_step, before, strict=True)]

    def loss_scale(self) -> float | None:
        """Of a GradScaler that resumable() keeps, as it is now."""
        scalers = (item for item in self._objects if isinstance(item, torch.amp.GradScaler))
        return next((float(item.get_scale()) for item in scalers), None)

    def _schedulers(self) -> list[LRScheduler]:
        return [
            item for item in self._objects if isinstance(item, LRScheduler) and not isinstance(item, ReduceLROnPlateau)
        ]

    def _restore(self) -> None:
        """Sets everything as it was after the job's step."""
        self._job.go_on()
        self._is_elsewhere = False
        kept = self._job.kept.state.get(KEY) or copy.deepcopy(self._at_first)
        if kept is None:
            return
        for optimizer, groups in zip(self._job.optimizers, kept["groups"], strict=True):
            if len(optimizer.param_groups) < len(groups):
                raise Error(
                    errno.EINVAL,
                    f"{type(optimizer).__name__} has {len(optimizer.param_groups)} groups, and it had {len(groups)} at the "
                    "job's step: call add_param_group() as it was called then, before the loop over resumable()",
                )
            # With those that came after that step nothing is wrong.
            for group, options in zip(optimizer.param_groups, groups, strict=False):
                group.update(options)
        self._job.regroup()
        self._job.freeze(kept["frozen"])
        for item, state in zip(self._objects, kept["objects"], strict=True):
            item.load_state_dict(state)
        for optimizer in self._job.optimizers:
            # Else torch warns of a scheduler that comes before its optimizer, whose step another process has taken.
            optimizer._opt_called = True  # type: ignore[attr-defined]
        for scheduler, steps in zip(self._schedulers(), kept.get("steps_after", ()), strict=False):
            for _ in range(steps):
                scheduler.step()

    def come_back(self) -> None:
        """The job stands elsewhere: sets everything as it was there. What is left of a loop's iteration counts for nothing."""
        self._restore()
        self._is_elsewhere = True
        if self._job.membership.is_in_loop:
            self._job.repeat()


def _check(loader: Iterable[Any], objects: tuple[Stateful, ...]) -> None:
    """TypeError: it is no loader, or one of the objects has no state. tierd.Error: what a trainer that comes back would have
    another order of, or be a step behind with."""
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise wrong_type("loader", loader, "what a loop goes over is wanted, such as a DataLoader")
    if isinstance(loader, Iterator):
        raise wrong_type(
            "loader",
            loader,
            "an iterator cannot begin again, which going on needs: give the DataLoader, or the list, and do to what "
            "resumable() gives what you do to it (enumerate(resumable(loader)))",
        )
    for item in objects:
        if not all(callable(getattr(item, name, None)) for name in ("state_dict", "load_state_dict")):
            raise wrong_type("an object", item, "it is to have state_dict() and load_state_dict(), as schedulers do")
    if getattr(loader, "synchronized_generator", None) is not None:
        raise Error(
            errno.EINVAL,
            "the loader draws its order from a generator of accelerate's, which nobody keeps: make the Accelerator with "
            "DataLoaderConfiguration(use_seedable_sampler=True)",
        )
    for item in objects:
        if not isinstance(item, LRScheduler) and isinstance(getattr(item, "scheduler", None), LRScheduler):
            raise Error(
                errno.EINVAL,
                f"{type(item).__name__} has a scheduler inside, which it steps in its own way: give the scheduler itself, "
                "and step that. With accelerate do not prepare it",
            )
