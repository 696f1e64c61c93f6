"""A GPU whose memory is the daemon's, in place of tierd.torch.cuda.Cuda: real libtierd and daemon, over the stand-in for the driver.

Its tensors are the host's, over that memory. Each function of torch that reads one is told to the driver as a kernel of the stream on
which it is computed, so that the stand-in finds who has not waited: here, or in the daemon, which overwrites what is released.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.dlpack import from_dlpack
from typing_extensions import CapsuleType

import tierd.torch.device
from driver_stand_in import ON_GPU, Driver, Tensor
from gpu_stand_in import StandIn, Stream


@functools.cache
def driver() -> Driver:
    return Driver()


class TierStandIn(StandIn):
    """Copies of gradients are done as by the other one."""

    shown: ClassVar[dict[int, TierStandIn]] = {}  # by addresses of storages

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._numbers: dict[Stream, int] = {}

    def number(self, stream: Stream) -> int:
        if stream not in self._numbers:
            self._numbers[stream] = driver().stream()
        return self._numbers[stream]

    def view(self, capsule: CapsuleType) -> torch.Tensor:
        tensor = Tensor(capsule)
        # One of its own, or one that another capsule of the lease has changed.
        assert tensor.device in ((ON_GPU, self.index), (1, self.index)), (tensor.device, self.index)
        view: torch.Tensor = from_dlpack(tensor.show_on_host())
        self.shown[view.data_ptr()] = self
        return view


class Kernels(TorchDispatchMode):
    """Has streams read what functions of torch read."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not any(result.alias_info is not None for result in function._schema.returns):
            for tensor in tree_leaves((args, kwargs)):
                if isinstance(tensor, torch.Tensor):
                    _read(tensor)
        return function(*args, **(kwargs or {}))


def _read(tensor: torch.Tensor) -> None:
    storage = tensor.untyped_storage()
    if (gpu := TierStandIn.shown.get(storage.data_ptr())) is not None:
        driver().read(gpu.number(gpu.current()), (storage.data_ptr(), storage.nbytes()))


def compute_there() -> None:
    """Has models on cuda computed on it."""
    devices: Any = tierd.torch.device
    devices.Cuda = TierStandIn
    driver()
