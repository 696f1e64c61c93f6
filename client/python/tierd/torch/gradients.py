"""From autograd to the daemon: each gradient goes to its unit's shared buffer, which is pushed when all are there."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import torch

from tierd._core import Error
from tierd.torch import compat
from tierd.torch.ranges import in_range

if TYPE_CHECKING:
    from tierd.torch.storage import Unit


def check_gradient_dtype(dtype: torch.dtype) -> None:
    """tierd.Error: autograd cannot make gradients of this type: it is not float32, or torch is too old."""
    if dtype is not torch.float32:
        raise Error(errno.EINVAL, f"gradient_dtype is {dtype}: it is torch.float32, or None, which leaves it as it is")
    if not hasattr(torch.Tensor, "grad_dtype"):
        raise Error(errno.ENOTSUP, f"gradient_dtype needs Tensor.grad_dtype, which PyTorch {torch.__version__} has not")


def taken_from(parameter: torch.Tensor) -> torch.Tensor | None:
    """The parameter's gradient, which it has no more; None: it has none of its own."""
    with compat.without_torch_function():
        gradient, parameter.grad = parameter.grad, None
    return None if gradient is None else gradient.detach()


class Gradients:
    """The gradients of one unit, from the first that comes to the push."""

    def __init__(self, unit: Unit):
        self.unit = unit
        self._buffers: dict[int, torch.Tensor] = {}
        self._parts: dict[int, Any] = {}  # of the tensors whose gradients are here
        self._awaited = 0  # of them, when the first one came

    @property
    def are_begun(self) -> bool:
        return bool(self._parts)

    @property
    def are_complete(self) -> bool:
        """Whether none will come, or no other: what is frozen now has none."""
        return len(self._parts) == (self._awaited if self._parts else self.unit.count_trained())

    def take(self, tensor: int, gradient: torch.Tensor) -> None:
        """Copies a gradient that autograd has accumulated. -ENOBUFS: this rank holds all buffers itself."""
        if gradient.is_sparse:
            name = self.unit.name_of(tensor)
            raise Error(
                errno.EINVAL,
                f"the gradient of {name} is sparse, which tierd does not sum: build its module with sparse=False",
            )
        if not self._buffers:
            unit = self.unit
            unit.membership.check_open()
            if unit.membership.is_early and unit.pushes > 0:
                raise Error(
                    errno.EINVAL,
                    f"unit {unit.name} has a second part of gradients in this step, and early_updates=True promises one "
                    "backward() for each, with room for them (gradient_bytes=): zero_grad() gives the step up",
                )
            buffers = in_range("wait", f"for a buffer of {unit.name}", lambda: unit.memory.gradients(unit))
            if buffers is None:
                return
            self._buffers = dict(enumerate(buffers))
            self._awaited = unit.count_trained()
        self._parts[tensor] = self.unit.memory.part(self.unit, self._buffers[tensor], gradient, self._parts.get(tensor))

    def push(self) -> None:
        """Hands over what is there. A tensor that no rank has a gradient of in any micro-batch stays as it is."""
        absent = [tensor for tensor in range(len(self.unit.parameters)) if tensor not in self._parts]
        parts = [(self._buffers[tensor], part) for tensor, part in self._parts.items()]
        self.discard()
        self.unit.pushes += 1  # before: Ctrl-C is heard when the call has come back
        in_range("push", self.unit.name, lambda: self.unit.memory.push(self.unit, absent, parts))

    def take_own(self) -> list[tuple[int, torch.Tensor]]:
        """Gradients that the caller has set himself; parameters have them no more."""
        found = [(tensor, taken_from(self.unit.parameters[tensor])) for tensor in sorted(self.unit.set_by_caller)]
        self.unit.set_by_caller.clear()
        return [(tensor, gradient) for tensor, gradient in found if gradient is not None]

    def forget(self) -> None:
        """The buffer is gone, and what was pushed is lost."""
        self.discard()
        self.unit.pushes = 0
        self.take_own()

    def discard(self) -> None:
        """What is there does not count. The buffer is given back with all others."""
        self._buffers.clear()
        self._parts.clear()
