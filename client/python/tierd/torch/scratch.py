"""Parameters that lie in files without names instead of the process' memory, from when they are made until a job has
them.

A file that is mapped shared needs nothing to be intercepted: whoever uses the parameter finds its values, and the kernel
writes what is not used to the disk when memory is short. The file goes with the parameter's storage, or with the process.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import sys
import tempfile
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from tierd._core import Error
from tierd.torch import compat, pages

# Smaller parameters stay in memory: a process may have some ten thousand mappings.
LEAST_BYTES = 1 << 20
# So many bytes of what was used last stay in the process' memory, and the last parameter always does.
WINDOW_BYTES = 64 << 20
# By which a mapping of ours is known: the name under which its file was mapped.
_NAME = "/proc/self/fd/"


class Scratch:
    """Where the parameters of a model that is being made lie."""

    def __init__(self, folder: str | None = None):
        """folder: on a disk, with room for the model; None: $TMPDIR, else /var/tmp."""
        self.folder = folder or os.environ.get("TMPDIR") or "/var/tmp"
        if not os.path.isdir(self.folder) or not os.access(self.folder, os.W_OK | os.X_OK):
            raise Error(errno.EACCES, f"{self.folder} is no folder that can be written to: name another one (scratch=)")
        if _is_in_memory(self.folder):
            print(
                f"tierd: {self.folder} is in memory, and so is the model until tierd.initialize(): name a folder on a disk "
                "(scratch=)",
                file=sys.stderr,
                flush=True,
            )
        self._recent: dict[int, torch.UntypedStorage] = {}
        self._filler = ThreadPoolExecutor(1, "tierd-init")
        self._filling: dict[int, Future[None]] = {}
        self._waiting: list[weakref.ref[nn.Parameter]] = []
        self._moved: list[weakref.ref[nn.Parameter]] = []

    def take(self, parameter: nn.Parameter) -> None:
        """Moves a parameter's values to a file, if it is large enough, as soon as no other tensor shares its memory."""
        self._waiting = [there for there in self._waiting if (other := there()) is not None and not self._move(other)]
        if not self._move(parameter):
            self._waiting.append(weakref.ref(parameter))

    def _move(self, parameter: nn.Parameter) -> bool:
        """False: somebody else has the memory, too, and would write to what the parameter does not have any more."""
        if not _is_movable(parameter):
            return True
        if compat.is_storage_shared(parameter):
            return False
        values = self.empty(parameter.dtype, parameter.shape, parameter.stride())
        _copy(parameter, values)
        parameter.data = values
        self._moved.append(weakref.ref(parameter))
        self.touch(parameter)
        return True

    def empty(self, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int] | None = None) -> torch.Tensor:
        """A tensor of zeros in a file of its own. tierd.Error: no room on the disk (ENOSPC), too many of them (ENOMEM)."""
        if stride is None:
            stride = torch.empty(shape, device="meta").stride()
        storage = self._storage(math.prod(shape) * dtype.itemsize)
        return torch.empty((), dtype=dtype, device="cpu").set_(storage, 0, shape, stride)

    def _storage(self, size: int) -> torch.UntypedStorage:
        with tempfile.TemporaryFile(dir=self.folder) as file:
            try:
                # A disk without room would be a SIGBUS later.
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                raise Error(
                    error.errno or errno.EIO,
                    f"{self.folder} has no room for a parameter of {size >> 20} MiB ({error.strerror}): "
                    "name a folder with room for the model (scratch=)",
                ) from None
            try:
                storage: Any = torch.UntypedStorage.from_file(f"{_NAME}{file.fileno()}", True, size)
            except RuntimeError as error:
                raise Error(
                    errno.ENOMEM, f"a parameter cannot be mapped ({error}): raise vm.max_map_count (sysctl)"
                ) from None
        return cast("torch.UntypedStorage", storage)

    def touch(self, tensor: torch.Tensor, *, is_written: bool = False) -> None:
        """Something is done with this tensor now, or it is written. What was used before leaves the process' memory."""
        if tensor.numel() * tensor.element_size() < LEAST_BYTES or not is_scratch(tensor):
            return
        # Held, so that no other memory comes to lie at its address.
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        is_recent = self._recent.pop(address, None) is not None
        self._recent[address] = storage
        if not is_recent:
            self._trim(WINDOW_BYTES)
        if is_written:
            # One page after the other, as it is written, would cost half as much as the random numbers in it.
            self._filling[address] = self._filler.submit(_fill, storage)

    def _trim(self, most: int) -> None:
        left = sum(storage.nbytes() for storage in self._recent.values())
        for address, storage in list(self._recent.items())[:-1]:
            if left > most:
                self._leave(address, storage)
                del self._recent[address]
                left -= storage.nbytes()

    def _leave(self, address: int, storage: torch.UntypedStorage) -> None:
        filling = self._filling.pop(address, None)
        if filling is not None and not filling.cancel():
            filling.result()
        pages.take_out(address, storage.nbytes())

    def finish(self) -> list[nn.Parameter]:
        """Nothing of the model stays in the process' memory but what is small. Its large parameters."""
        for there in self._waiting:
            if (parameter := there()) is not None:
                self._move(parameter)
        for address, storage in self._recent.items():
            self._leave(address, storage)
        return [parameter for there in self._moved if (parameter := there()) is not None]

    def close(self) -> None:
        """What was made lives as long as its parameters, and nothing else of it does."""
        self._filler.shutdown(cancel_futures=True)
        self._recent.clear()
        self._filling.clear()
        self._waiting.clear()
        self._moved.clear()


def is_scratch(tensor: torch.Tensor) -> bool:
    """Whether the tensor lies in a file of init()."""
    try:
        return str(tensor.untyped_storage().filename or "").startswith(_NAME)
    except (NotImplementedError, RuntimeError):
        # Tensors without a storage are none of ours.
        return False


def _fill(storage: torch.UntypedStorage) -> None:
    # The storage comes along, so that no other memory can lie there meanwhile.
    pages.make(storage.data_ptr(), storage.nbytes())


def _is_movable(parameter: nn.Parameter) -> bool:
    """Whether it is large, and has an allocation of the process' memory to itself."""
    if nn.parameter.is_lazy(parameter) or type(parameter.data) is not torch.Tensor:
        return False
    if parameter.device.type != "cpu" or parameter.layout is not torch.strided or parameter.storage_offset() != 0:
        return False
    size, storage = parameter.numel() * parameter.element_size(), parameter.untyped_storage()
    return size >= LEAST_BYTES and storage.nbytes() == size and storage.filename is None


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copies a storage to one of zeros. What torch.empty() gave, and nobody has written, takes no memory for it."""
    here, there = source.untyped_storage(), target.untyped_storage()
    for first, size in pages.written(here.data_ptr(), here.nbytes()):
        ctypes.memmove(there.data_ptr() + first, here.data_ptr() + first, size)


def _is_in_memory(folder: str) -> bool:
    """Whether the folder is on a file system without a disk."""
    device = os.stat(folder).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if fields.split()[2] == name:
            return kind.split()[0] in ("tmpfs", "ramfs")
    return False
