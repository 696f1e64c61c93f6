"""A step of the optimizer: how it is clipped, and its norm, which is known after it."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tierd._core import Error
from tierd.torch.storage import place_of

if TYPE_CHECKING:
    from tierd.torch.job import TorchJob


class Step:
    """A step from the backward before it on: how it is clipped, and what its norm was."""

    def __init__(self, job: TorchJob, clip_norm: float):
        self.job = job
        self.clip_norm = clip_norm
        self.norm: float | None = None
        self.is_closed = False
        self.is_scaled = False  # by a GradScaler, which wants to know of overflows
        self._factor = 1.0  # what undoes its scale
        self._found: list[torch.Tensor] = []  # where it looks for them
        self._taken: list[torch.optim.Optimizer] = []
        self._groups: dict[int, list[dict[str, Any]]] = {}  # as they were then: a scheduler may come before the others
        self._given_up: set[int] = set()  # parameters, whose gradients are not to count
        self._not_given_up: set[int] = set()  # of those that were pushed, as far as it is known

    # ---- Optimizers

    def take(self, optimizer: torch.optim.Optimizer, loss_scale: float | None) -> None:
        """An optimizer has come to the step. loss_scale: as of TorchJob.step()."""
        if any(optimizer is other for other in self._taken):
            kind = type(optimizer).__name__
            raise Error(errno.EINVAL, f"step() of {kind} is called twice, and that of another optimizer not yet")
        self._taken.append(optimizer)
        self._groups[id(optimizer)] = [dict(group) for group in optimizer.param_groups]
        if loss_scale is not None:
            self.unscale(_inverse(loss_scale))

    def leave(self, optimizer: torch.optim.Optimizer) -> None:
        """It will come again: the step could not be closed."""
        self._taken = [other for other in self._taken if other is not optimizer]

    def check_open(self) -> None:
        """tierd.Error: a gradient comes, and some of several optimizers have come to the step: they would get it, too."""
        if self._taken:
            raise Error(
                errno.ENOTSUP,
                f"backward() after step() of {type(self._taken[0]).__name__}, and before that of the other optimizers: they take "
                "each step together, so call step() of all of them; a part that is trained in turns wants a model of its own",
            )

    def give_up(self, parameter: torch.Tensor) -> bool:
        """The parameter's gradient is not to count. Whether that is so of all that were pushed: nothing is left of the step.

        tierd.Error: one of several optimizers takes the step.
        """
        if any(parameter is own for other in self._taken for group in other.param_groups for own in group["params"]):
            # Those of the step are taken when the others come to it.
            return False
        if self._taken:
            kind = type(self._taken[0]).__name__
            raise Error(
                errno.ENOTSUP,
                f"gradients of other parameters are given up, and {kind} takes a step: all optimizers have to do the same",
            )
        self._given_up.add(id(parameter))
        self._not_given_up.discard(id(parameter))
        if not self._not_given_up:
            self._not_given_up = {id(own) for own in self.job.pushed()} - self._given_up
        return not self._not_given_up

    def give_nothing_up(self) -> None:
        """All that was pushed counts again: it could not be thrown away."""
        self._given_up, self._not_given_up = set(), set()

    def check_whole(self) -> None:
        """tierd.Error: a part of the gradients was given up, and the daemon has them all."""
        given_up = [own for own in self.job.pushed() if id(own) in self._given_up] if self._given_up else []
        if given_up:
            place = place_of(given_up[0])
            assert place is not None
            raise Error(
                errno.ENOTSUP,
                f"the gradient of {place[0].name_of(place[1])} was set to None or to zeros between backward() and step(), and "
                "those of others were not: the daemon gives up all of a job's gradients, or none. Call zero_grad() of the "
                "model or of all optimizers; what is not to be trained in a step wants requires_grad_(False) before backward()",
            )

    def has_all(self, optimizers: list[torch.optim.Optimizer]) -> bool:
        return len(self._taken) == len(optimizers)

    def groups(self, optimizers: list[torch.optim.Optimizer]) -> list[list[dict[str, Any]]]:
        """Of each optimizer, as they are in this step."""
        return [self._groups[id(optimizer)] for optimizer in optimizers]

    def rates(self, gradient_scale: float, loss_scale: float | None = None) -> dict[str, Any]:
        """What the daemon is told of it. gradient_scale: 1 over the number of ranks. loss_scale: that of a GradScaler, which
        has not come to the step; None: it has, or there is none."""
        factor = self._factor if loss_scale is None else float(_inverse(loss_scale))
        return {"learning_rate": 1.0, "gradient_scale": gradient_scale * factor, "clip_norm": self.clip_norm}

    # ---- GradScaler

    def unscale(self, factor: torch.Tensor) -> None:
        """What gradients are to be multiplied with, a scalar; of several optimizers it is the same."""
        if not self.is_scaled or float(factor) != 1.0:
            self._factor = float(factor)
        self.is_scaled = True

    def look_for_overflow(self, found: torch.Tensor, factor: torch.Tensor) -> None:
        """A GradScaler wants gradients unscaled, and 1 in the scalar if one of them is not finite."""
        self._found.append(found)
        self.unscale(factor)

    def tell_overflow(self, finish: Callable[[], dict[str, Any] | None]) -> None:
        """Waits for the step: whether it has an overflow is known to the daemon alone, of all ranks' gradients."""
        try:
            result = finish()
        except Error as error:
            if error.errno != errno.EDOM:
                raise
            self.norm = math.inf
            result = {"is_skipped": True}
        if result is not None and result["is_skipped"]:
            for found in self._found:
                found.fill_(1.0)

    # ---- The norm

    def await_norm(self) -> float:
        """NaN where the step was dropped or lost. tierd.Error: it was not closed yet, or has failed."""
        if not self.is_closed:
            raise Error(errno.EAGAIN, "the norm of the gradients is known after optimizer.step()")
        if self.norm is None:
            self.job.finish()
        return math.nan if self.norm is None else self.norm


def _inverse(loss_scale: float) -> torch.Tensor:
    """As a GradScaler rounds it."""
    return torch.tensor(loss_scale).double().reciprocal().float()


class Norm(torch.Tensor):
    """A step's norm, as a scalar tensor: it is waited for when it is first looked at."""

    step: Step

    @staticmethod
    def of(step: Step) -> Norm:
        norm: Norm = torch.Tensor._make_subclass(Norm, torch.tensor(math.nan))
        norm.step = step
        return norm

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.Tensor.__repr__ and not args[0].step.is_closed:
            # A debugger or a notebook shows it whenever it likes.
            return "<the norm of the gradients, which is known after optimizer.step()>"
        args = tuple(torch.tensor(item.step.await_norm()) if isinstance(item, Norm) else item for item in args)
        return function(*args, **(kwargs or {}))
