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
from gpu_stand_in import Event, StandIn, Stream, compute_all_on


@functools.cache
def driver() -> Driver:
    return Driver()


class TierStandIn(StandIn):
    """What the daemon has no memory for is copied as by the other one."""

    shown: ClassVar[dict[int, TierStandIn]] = {}  # by addresses of storages

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._numbers: dict[Stream, int] = {}
        self._events: dict[Event, int] = {}

    def number(self, stream: Stream) -> int:
        if stream not in self._numbers:
            self._numbers[stream] = driver().stream()
        return self._numbers[stream]

    def record(self, stream: Stream) -> Event:
        event = super().record(stream)
        if not stream.is_copying:
            self._events[event] = driver().record(self.number(stream))
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        super().wait(stream, event)
        if not stream.is_copying and event in self._events:
            driver().wait(self.number(stream), self._events[event])

    def view(self, capsule: CapsuleType) -> torch.Tensor:
        tensor = Tensor(capsule)
        # One of its own, or one that another capsule of the lease has changed.
        assert tensor.device in ((ON_GPU, self.index), (1, self.index)), (tensor.device, self.index)
        view: torch.Tensor = from_dlpack(tensor.show_on_host())
        self.shown[view.data_ptr()] = self
        return view


class Kernels(TorchDispatchMode):
    """Has streams read and write what functions of torch read and write."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for argument, values in zip(function._schema.arguments, args, strict=False):
            self._use(values, argument)
        for argument in function._schema.arguments:
            self._use(kwargs.get(argument.name), argument)
        return function(*args, **kwargs)

    def _use(self, values: Any, argument: Any) -> None:
        # Else a view is made of it, which is no kernel.
        if argument.alias_info is not None and not argument.alias_info.is_write:
            return
        for tensor in tree_leaves(values):
            if isinstance(tensor, torch.Tensor):
                _use(tensor, is_written=argument.alias_info is not None)


def _use(tensor: torch.Tensor, *, is_written: bool) -> None:
    storage = tensor.untyped_storage()
    if (gpu := TierStandIn.shown.get(storage.data_ptr())) is not None:
        driver().run(gpu.number(gpu.current()), (storage.data_ptr(), storage.nbytes(), is_written))


def compute_there() -> None:
    """Has models on cuda computed on it."""
    devices: Any = tierd.torch.device
    devices.Cuda = TierStandIn
    driver()


def compute_all_there() -> None:
    """The same of models whose device is not said, and of all that is computed."""
    driver()
    compute_all_on(TierStandIn, gpu_tier=True)
    Kernels().__enter__()  # type: ignore[no-untyped-call]
