"""What a model on tierd may not become: of another type, on another device, or with parameters that the job has not."""

from __future__ import annotations

import errno
import types
import weakref
from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn
from torch.nn.modules import module as registration

from tierd._core import Error
from tierd.torch.storage import place_of


class Handle(Protocol):
    def remove(self) -> None: ...


class _Guard:
    """The method that `.to()`, `.half()` and their like call, of a module whose parameters are on tierd."""

    def __init__(self, module: nn.Module):
        self._module = weakref.ref(module)
        module.__dict__["_apply"] = types.MethodType(_apply, module)

    def remove(self) -> None:
        if (module := self._module()) is not None:
            module.__dict__.pop("_apply", None)


def guard(model: nn.Module) -> list[Handle]:
    """Has what would change the model's parameters raise an error that names one, until the handles are removed."""
    modules: weakref.WeakSet[nn.Module] = weakref.WeakSet(model.modules())

    def registers_parameter(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is None or module not in modules:
            return
        own = module._parameters.get(name)
        if (place := place_of(parameter)) is None:
            raise _is_late(name, module)
        if own is not None and own is not parameter and (before := place_of(own)) is not None:
            raise Error(
                errno.ENOTSUP,
                f"{before[0].name_of(before[1])} would become {place[0].name_of(place[1])} after tierd.initialize(), and the job "
                "would go on with both: tie weights before initialize()",
            )

    def registers_module(module: nn.Module, name: str, child: nn.Module | None) -> None:
        if child is not None and module in modules:
            for inner, parameter in child.named_parameters():
                if place_of(parameter) is None:
                    raise _is_late(f"{name}.{inner}", module)

    return [
        *(_Guard(module) for module in modules if any(_is_placed(item) for item in module._parameters.values())),
        registration.register_module_parameter_registration_hook(registers_parameter),
        registration.register_module_module_registration_hook(registers_module),
    ]


def _is_placed(parameter: torch.Tensor | None) -> bool:
    return parameter is not None and place_of(parameter) is not None


def _is_late(name: str, module: nn.Module) -> Error:
    return Error(
        errno.EINVAL,
        f"parameter {name} is added to a {type(module).__name__} after tierd.initialize(): the job does not have it. Add "
        "it before initialize(); a job that exists keeps the parameters that it has",
    )


def _apply(self: nn.Module, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
    if not any(_is_placed(parameter) for parameter in self._parameters.values()):
        # A copy of the module, whose parameters are its own.
        type(self)._apply(self, function, recurse)
        return self
    for parameter in self._parameters.values():
        if parameter is not None and (place := place_of(parameter)) is not None:
            _check_kept(place[0].name_of(place[1]), parameter, function)
    for child in self.children() if recurse else ():
        child._apply(function)
    for name, buffer in self._buffers.items():
        if buffer is not None:
            self._buffers[name] = function(buffer)
    return self


def _check_kept(name: str, parameter: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Raises where the function would make another type of it, or move it."""
    sample = torch.zeros([1] * parameter.dim(), dtype=parameter.dtype)
    changed = function(sample)
    if (changed.dtype, changed.device) != (sample.dtype, sample.device):
        raise Error(
            errno.ENOTSUP,
            f"{name} is {sample.dtype} on {sample.device} in the daemon, and cannot become {changed.dtype} on "
            f"{changed.device}: convert the model before tierd.initialize()",
        )
