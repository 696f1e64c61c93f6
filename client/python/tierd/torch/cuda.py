"""The few calls of torch.cuda that copies between the host and a GPU need."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch.utils.dlpack import from_dlpack
from typing_extensions import CapsuleType

from tierd._core import Error

Stream: TypeAlias = "torch.cuda.Stream"
Event: TypeAlias = "torch.cuda.Event"

OutOfMemory = torch.cuda.OutOfMemoryError

# cudaHostRegisterReadOnly, and CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, which torch does not tell.
_READ_ONLY = 8
_READ_ONLY_SUPPORTED = 113


class Cuda:
    """One GPU. Tests have another class in its place."""

    @staticmethod
    def count() -> int:
        """How many there are. tierd.Error: none, and why."""
        if torch.version.cuda is None:
            raise Error(
                errno.ENODEV,
                f"a model on cuda wants a PyTorch with CUDA, and {torch.__version__} has none: install one that has, or say "
                'device="cpu"',
            )
        count = torch.cuda.device_count()
        if count == 0 or not torch.cuda.is_available():
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            hint = "" if visible is None else f"; CUDA_VISIBLE_DEVICES is {visible!r}"
            raise Error(
                errno.ENODEV,
                f"a model on cuda wants a GPU, and PyTorch finds none{hint}: nvidia-smi and `tierctl doctor` say more, or say "
                'device="cpu"',
            )
        return count

    def __init__(self, index: int):
        self.device = torch.device("cuda", index)

    # ---- Streams and events

    def stream(self) -> Stream:
        """A new one."""
        return torch.cuda.Stream(self.device)

    def current(self) -> Stream:
        """That on which this thread computes now."""
        return torch.cuda.current_stream(self.device)

    def number(self, stream: Stream) -> int:
        """The CUstream that it is."""
        number: int = stream.cuda_stream
        return number

    def is_captured(self) -> bool:
        """Whether what this thread computes now goes into a graph of CUDA, to be repeated."""
        return torch.cuda.is_current_stream_capturing()

    def record(self, stream: Stream) -> Event:
        """An event that is done when all that the stream has now is."""
        event: Event = stream.record_event()
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        """What comes to the stream from now on waits for the event; the caller does not."""
        stream.wait_event(event)

    def is_done(self, event: Event) -> bool:
        is_done: bool = event.query()
        return is_done

    def finish(self, event: Event) -> None:
        """Waits until it is done."""
        event.synchronize()

    # ---- Memory

    def allocate(self, stream: Stream, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """Memory of the GPU that the stream writes first. OutOfMemory: there is none."""
        with torch.cuda.stream(stream):
            return torch.empty(shape, dtype=dtype, device=self.device)

    def view(self, capsule: CapsuleType) -> torch.Tensor:
        """A tensor of memory of the GPU that is not torch's. Whoever computes with it has waited for it."""
        tensor: torch.Tensor = from_dlpack(capsule)
        return tensor

    def let_go(self, memory: torch.Tensor, streams: Iterable[Stream]) -> None:
        """When the tensor is gone torch gives its memory to nobody before these streams have done what they have now."""
        for stream in streams:
            memory.record_stream(stream)

    def copy(self, stream: Stream, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Has the stream copy, to the first of each pair. Both have to stay until it has."""
        with torch.cuda.stream(stream), torch.no_grad():
            for to, source in pairs:
                to.copy_(source, non_blocking=True)

    def pinned(self, size: int) -> torch.Tensor:
        """Bytes of the host that the GPU reads by itself."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def pin(self, address: int, size: int, *, is_read_only: bool) -> bool:
        """Has the GPU read, or else also write, this memory of the host by itself. False: it cannot."""
        if is_read_only and not self._pins_read_only():
            return False
        with torch.cuda.device(self.device):
            error = torch.cuda.cudart().cudaHostRegister(address, size, _READ_ONLY if is_read_only else 0)
            if int(error) == 0:
                return True
            # The next launch would tell of the error as of its own.
            with contextlib.suppress(RuntimeError):
                torch.zeros((), device=self.device)
        return False

    def unpin(self, address: int) -> None:
        with torch.cuda.device(self.device):
            torch.cuda.cudart().cudaHostUnregister(address)

    def _pins_read_only(self) -> bool:
        device, value = ctypes.c_int(), ctypes.c_int()
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            return False
        index = self.device.index
        return (
            driver.cuDeviceGet(ctypes.byref(device), index) == 0
            and driver.cuDeviceGetAttribute(ctypes.byref(value), _READ_ONLY_SUPPORTED, device) == 0
            and value.value == 1
        )
