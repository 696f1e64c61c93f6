"""A model's membership of a job: its units, its hooks, its steps."""

from __future__ import annotations

import atexit
import errno
import weakref
from typing import Any

import torch
from torch import nn

from tierd import _core
from tierd._core import Error
from tierd.torch.hooks import Hooks
from tierd.torch.optimizer import Steps
from tierd.torch.storage import Unit
from tierd.torch.units import Plan

_FORMATS = {torch.float32: _core.FP32, torch.bfloat16: _core.BF16, torch.float16: _core.FP16}

# What safetensors calls the types that are kept as bytes.
_RAW = {
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class TorchJob:
    """What `initialize()` makes of a model. One object per job and process."""

    def __init__(self, core: _core.Job, model: nn.Module, world_size: int):
        self.core = core
        self.model = model
        self.units: list[Unit] = []
        self.addresses: dict[int, tuple[Unit, int, int]] = {}
        self.hooks = Hooks(core, model, self.addresses)
        self.steps = Steps()
        self.gradient_scale = 1.0 / world_size
        self._at_exit = weakref.WeakMethod(self.close)
        atexit.register(_close_at_exit, self._at_exit)

    # ---- Units

    def define(self, plans: list[Plan], groups: dict[int, int]) -> None:
        """Defines the units. groups: the optimizer's group of each parameter that is trained, by its identity."""
        for plan in plans:
            tensors = [_tensor(entry.names, entry.parameter, groups) for entry in plan.entries]
            index = self.core.define(plan.name, tensors)
            unit = Unit(self.core, index, plan.name, plan.entries, self.addresses)
            self.units.append(unit)

    def write(self) -> None:
        """Gives the job the values that the parameters have."""
        for unit in self.units:
            for tensor, parameter in enumerate(unit.parameters):
                values = parameter.detach().contiguous()
                if values.dtype not in _FORMATS:
                    values = values.view(-1).view(torch.uint8)
                self.core.write(unit.index, tensor, torch.utils.dlpack.to_dlpack(values))

    def install(self, plans: list[Plan], groups: dict[int, int]) -> None:
        """Takes the values out of the model, which from now on sees them when it needs them."""
        by_modules: dict[tuple[int, ...], tuple[list[nn.Module], list[Unit]]] = {}
        for plan, unit in zip(plans, self.units, strict=True):
            trained = [i for i, entry in enumerate(plan.entries) if _is_trained(entry.parameter, groups)]
            if trained:
                self.hooks.train(unit, trained)
            for module in plan.modules:
                by_modules.setdefault((id(module),), ([module], []))[1].append(unit)
            unit.hide()
        for modules, units in by_modules.values():
            self.hooks.add(modules, units)

    # ---- Steps

    def step(self, groups: list[dict[str, Any]]) -> None:
        if not self.hooks.begin_step():
            raise Error(errno.EINVAL, "optimizer.step() without a gradient: call loss.backward() before it")
        self.steps.finish()
        rates = {"learning_rate": 1.0, "gradient_scale": self.gradient_scale}
        self.steps.add(self.core.step(rates, groups))
        self.hooks.end_step()

    def check_nothing_pushed(self) -> None:
        if self.hooks.begin_step():
            raise Error(
                errno.EBUSY,
                "zero_grad() between backward() and step(): the gradients are summed in the daemon already, and cannot be taken back",
            )

    def close(self) -> None:
        """Ends the membership in good order; the model keeps its hooks, but not its values."""
        atexit.unregister(self._at_exit)
        self.hooks.remove()
        self.core.discard_all()
        self.core.close()


def _close_at_exit(close: weakref.WeakMethod[Any]) -> None:
    method = close()
    if method is not None:
        method()


def _is_trained(parameter: nn.Parameter, groups: dict[int, int]) -> bool:
    return parameter.requires_grad and id(parameter) in groups


def _tensor(names: list[str], parameter: nn.Parameter, groups: dict[int, int]) -> dict[str, Any]:
    """A parameter's definition. tierd.Error: a type that is not supported."""
    tensor: dict[str, Any] = {"name": names[0], "is_frozen": not _is_trained(parameter, groups)}
    if len(names) > 1:
        tensor["alias"] = names[1]
    if parameter.dtype in _FORMATS:
        tensor |= {"format": _FORMATS[parameter.dtype], "shape": tuple(parameter.shape)}
    elif parameter.dtype in _RAW and tensor["is_frozen"]:
        shape = ",".join(str(size) for size in parameter.shape)
        tensor |= {
            "format": _core.BYTES,
            "shape": (parameter.numel() * parameter.element_size(),),
            "dtype": f"{_RAW[parameter.dtype]}[{shape}]",
        }
    else:
        raise Error(
            errno.EINVAL,
            f"{names[0]} is {parameter.dtype}: trained parameters are float32, bfloat16 or float16. Convert the model first",
        )
    if not tensor["is_frozen"]:
        tensor["group"] = groups[id(parameter)]
    return tensor
