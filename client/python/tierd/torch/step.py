"""A step of the optimizer: how it is clipped, and its norm, which is known after it."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tierd._core import Error

if TYPE_CHECKING:
    from tierd.torch.job import TorchJob


class Step:
    """A step from the backward before it on: how it is clipped, and what its norm was."""

    def __init__(self, job: TorchJob, clip_norm: float):
        self.job = job
        self.clip_norm = clip_norm
        self.norm: float | None = None
        self.is_closed = False

    def await_norm(self) -> float:
        """NaN where the step was dropped or lost. tierd.Error: it was not closed yet, or has failed."""
        if not self.is_closed:
            raise Error(errno.EAGAIN, "the norm of the gradients is known after optimizer.step()")
        if self.norm is None:
            self.job.finish()
        return math.nan if self.norm is None else self.norm


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
        args = tuple(torch.tensor(item.step.await_norm()) if isinstance(item, Norm) else item for item in args)
        return function(*args, **(kwargs or {}))
