"""What a model on tierd may not become: of another type, on another device, with parameters that the job has not, or
another library's to distribute."""

from __future__ import annotations

import errno
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import NoReturn, Protocol

import torch
from torch import nn
from torch.nn.modules import module as registration

from tierd._core import Error
from tierd.torch import compat
from tierd.torch.storage import is_replaced, place_of


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


# FullyShardedDataParallel asks the registry.
_DISTRIBUTING = (nn.DataParallel, nn.parallel.DistributedDataParallel)


class _Registry(OrderedDict[str, object]):
    """What of torch's composable functions was applied to a module: none that distributes it may come."""

    def __contains__(self, name: object) -> bool:
        if name in compat.DISTRIBUTING and not compat.is_looking_for_shards():
            raise _is_distributed()
        return super().__contains__(name)


class _Plain:
    """Refuses to make another kind of module of one, until it is removed."""

    def __init__(self, module: nn.Module):
        self._module = weakref.ref(module)
        vars(module)[compat.PREPARE_SCRIPTABLE] = _refuse_script
        if compat.REGISTRY:
            vars(module)[compat.REGISTRY] = _Registry(vars(module).get(compat.REGISTRY, {}))

    def remove(self) -> None:
        if (module := self._module()) is not None:
            vars(module).pop(compat.PREPARE_SCRIPTABLE, None)
            if registry := vars(module).pop(compat.REGISTRY, None):
                vars(module)[compat.REGISTRY] = OrderedDict(registry)


def _refuse_script() -> NoReturn:
    raise Error(
        errno.ENOTSUP,
        "torch.jit.script of a model on tierd, whose parameters come and go: script a copy of it (copy.deepcopy), or use "
        "torch.compile",
    )


def guard(model: nn.Module) -> list[Handle]:
    """Has what would change the model's parameters raise an error that names one, until the handles are removed."""
    # Each with its class, and with the parameters that it has.
    modules = weakref.WeakKeyDictionary({each: (type(each), dict(each._parameters)) for each in model.modules()})

    def check_whole(module: nn.Module) -> None:
        """Gives back what was taken out, when something else comes in its place."""
        kind, parameters = modules[module]
        for name, parameter in parameters.items():
            if module._parameters.get(name) is parameter or parameter is None:
                continue
            if (place := place_of(parameter)) is not None:
                module.__class__ = kind
                module._parameters.clear()
                module._parameters.update(parameters)
                raise is_replaced(place[0].name_of(place[1]))

    def registers_parameter(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is None or module not in modules:
            return
        own = module._parameters.get(name)
        if (place := place_of(parameter)) is None:
            check_whole(module)
            raise _is_late(name, module)
        if own is not None and own is not parameter and (before := place_of(own)) is not None:
            raise Error(
                errno.ENOTSUP,
                f"{before[0].name_of(before[1])} would become {place[0].name_of(place[1])} after tierd.initialize(), and the job "
                "would go on with both: tie weights before initialize()",
            )

    def registers_module(module: nn.Module, name: str, child: nn.Module | None) -> None:
        if child is None:
            return
        if isinstance(module, _DISTRIBUTING) and any(inner in modules for inner in child.modules()):
            raise _is_distributed()
        if module in modules:
            check_whole(module)
            for inner, parameter in child.named_parameters():
                if place_of(parameter) is None:
                    raise _is_late(f"{name}.{inner}", module)

    return [
        *(_Guard(module) for module in modules if any(_is_placed(item) for item in module._parameters.values())),
        *(_Plain(module) for module in modules),
        registration.register_module_parameter_registration_hook(registers_parameter),
        registration.register_module_module_registration_hook(registers_module),
    ]


def _is_placed(parameter: torch.Tensor | None) -> bool:
    return parameter is not None and place_of(parameter) is not None


def _is_distributed() -> Error:
    return Error(
        errno.ENOTSUP,
        "the model is on tierd, which distributes it: each rank gathers parameters and pushes gradients, and stage= of "
        "tierd.initialize() says what is partitioned. Leave DistributedDataParallel, fully_shard() and their like out",
    )


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
    sample = torch.zeros([1] * parameter.dim(), dtype=parameter.dtype, device=parameter.device)
    try:
        changed = function(sample)
    except (RuntimeError, AssertionError) as error:
        # There is no such device.
        what = str(error).partition("\n")[0]
    else:
        if (changed.dtype, changed.device) == (sample.dtype, sample.device):
            return
        what = f"{changed.dtype} on {changed.device}"
    raise Error(
        errno.ENOTSUP,
        f"{name} is {sample.dtype} on {sample.device} in the daemon, and cannot become another ({what}): convert the model "
        "before tierd.initialize(), whose device= says on what it is computed",
    )
