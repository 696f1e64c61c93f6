"""Copies of units on a GPU: of those that are computed with, of the one that was last, and of the one that comes next."""

from __future__ import annotations

import errno
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from tierd._core import Error
from tierd.report import text_of_bytes
from tierd.torch import compat
from tierd.torch.cuda import Cuda, Event, OutOfMemory, Stream
from tierd.torch.pinning import Pinning

if TYPE_CHECKING:
    from tierd.torch.storage import Addresses, Unit

# A version, and the unit's tensors in the daemon's memory, with a lease.
Lease = tuple[int, list[torch.Tensor]]

# So many of the units that nobody computes with stay: the last one, with which backward begins, and the next one.
_IDLE = 2


@dataclass(eq=False)
class Copy:
    """A unit's values on the GPU: they are there when the event is done."""

    unit: Unit
    version: int
    memory: list[torch.Tensor]
    event: Event
    readers: list[Stream] = field(default_factory=list)  # have waited for them, and may read them


class Order:
    """Which unit comes after which two others, as it was the last time."""

    def __init__(self) -> None:
        self._next: dict[tuple[Unit | None, Unit | None], Unit] = {}
        self._last: tuple[Unit | None, Unit | None] = (None, None)

    def follow(self, unit: Unit) -> Unit | None:
        """The unit is used now. The one that is used next, if that is known."""
        if unit is not self._last[1]:
            self._next[self._last] = unit
            self._last = self._last[1], unit
        return self._next.get(self._last)

    def begin(self) -> None:
        """What is used next comes after nothing."""
        self._last = (None, None)


class Copies:
    """Those of one job."""

    def __init__(self, cuda: Cuda, pinning: Pinning, addresses: Addresses):
        self._cuda = cuda
        self._pinning = pinning
        self._addresses = addresses
        self._stream = cuda.stream()
        self._there: dict[Unit, Copy] = {}  # the one that was used first comes first
        self._leases: deque[tuple[Event, list[torch.Tensor]]] = deque()  # until the copies are done
        self.order = Order()
        self._lock = threading.RLock()

    def __contains__(self, unit: Unit) -> bool:
        return unit in self._there

    # ---- Computing with them

    def use(self, unit: Unit) -> tuple[int, list[torch.Tensor]] | None:
        """The version and views of a copy, which this thread's stream waits for. None: there is none."""
        with self._lock:
            copy = self._there.pop(unit, None)
            if copy is None:
                return None
            self._there[unit] = copy
            self._await(copy)
            for tensor, memory in enumerate(copy.memory):
                # Of nothing it is 0.
                if address := memory.untyped_storage().data_ptr():
                    self._addresses[address] = (unit, tensor, copy.version)
            return copy.version, [memory.detach() for memory in copy.memory]

    def join(self, unit: Unit) -> None:
        """Another thread may have come for the unit before, with another stream."""
        with self._lock:
            if (copy := self._there.get(unit)) is not None:
                self._await(copy)

    def _await(self, copy: Copy) -> None:
        stream = self._cuda.current()
        if stream not in copy.readers:
            self._cuda.wait(stream, copy.event)
            copy.readers.append(stream)

    # ---- Making them

    def make(self, unit: Unit, lease: Lease, *, is_wanted: bool) -> None:
        """Begins a copy, and keeps the lease until it is done. One that is wanted now may take the room of all others that
        nobody computes with. OutOfMemory: there is no room on the GPU."""
        version, tensors = lease
        with self._lock:
            try:
                memory = self._room_for(tensors, is_wanted=is_wanted)
            except BaseException:
                tensors.clear()  # the error would keep them, and with them the lease
                raise
            self._pinning.copy_up(self._stream, zip(memory, tensors, strict=True))
            if unit in self._there:
                self._drop(unit)
            self._there[unit] = Copy(unit, version, memory, self._cuda.record(self._stream))
            self._leases.append((self._there[unit].event, tensors))

    def _room_for(self, tensors: list[torch.Tensor], *, is_wanted: bool) -> list[torch.Tensor]:
        try:
            return self._take_room(tensors, self._leave_idle(_IDLE))
        except OutOfMemory:
            if not is_wanted:
                raise
        # Not within that: its frames have memory.
        return self._take_room(tensors, self._leave_idle(0))

    def _leave_idle(self, most: int) -> list[tuple[torch.Tensor, list[Stream]]]:
        """Drops other copies that nobody computes with. Their memory, as far as nobody views it, and who has read it."""
        idle = [unit for unit in self._there if not unit.is_here]
        dropped = [self._drop(unit) for unit in idle[: max(len(idle) - most, 0)]]
        return [(room, copy.readers) for copy in dropped for room in copy.memory if not compat.is_storage_shared(room)]

    def _take_room(
        self, tensors: list[torch.Tensor], rooms: list[tuple[torch.Tensor, list[Stream]]]
    ) -> list[torch.Tensor]:
        """Memory of a copy that goes where it has the shape, else new memory, when all others are torch's again."""
        found: list[torch.Tensor | None] = []
        for tensor in tensors:
            fitting = [i for i, (it, _) in enumerate(rooms) if it.shape == tensor.shape and it.dtype == tensor.dtype]
            if not fitting:
                found.append(None)
                continue
            room, readers = rooms.pop(fitting[0])
            self._await_readers(readers)
            found.append(room)
        rooms.clear()
        return [self._allocate(each) if there is None else there for each, there in zip(tensors, found, strict=True)]

    def _await_readers(self, readers: list[Stream]) -> None:
        """The copying stream writes over memory when who may read it has done what is there now."""
        while readers:
            self._cuda.wait(self._stream, self._cuda.record(readers.pop()))

    @torch.inference_mode(False)
    def _allocate(self, like: torch.Tensor) -> torch.Tensor:
        """Also in an evaluation it is memory for trainings."""
        return self._cuda.allocate(self._stream, like.shape, like.dtype)

    def _drop(self, unit: Unit) -> Copy:
        """Its memory is torch's, once nobody views it: what lies there then is no unit's."""
        copy = self._there.pop(unit)
        for memory in copy.memory:
            self._addresses.pop(memory.untyped_storage().data_ptr(), None)
            self._cuda.let_go(memory, copy.readers)
        return copy

    # ---- The end of them

    def let_leases_go(self) -> None:
        """Those whose copies are done."""
        with self._lock:
            while self._leases and self._cuda.is_done(self._leases[0][0]):
                self._leases.popleft()

    def await_all(self) -> None:
        """Waits until all copies are done. The leases stay."""
        with self._lock:
            for event, _ in self._leases:
                self._cuda.finish(event)

    def finish(self) -> None:
        """Waits until all copies are done, and no lease is left."""
        with self._lock:
            self.await_all()
            self._leases.clear()

    def forget(self) -> None:
        """What is copied is not the unit's any more."""
        self.finish()
        with self._lock:
            for unit in list(self._there):
                self._drop(unit)
            self.order.begin()


def no_room(cuda: Cuda, unit: Unit, said: str) -> Error:
    """What is raised where a unit that is wanted does not fit."""
    size = sum(parameter.nbytes for parameter in unit.parameters)
    return Error(
        errno.ENOMEM,
        f"unit {unit.name} takes {text_of_bytes(size)}, for which {cuda.device} has no room beside what the computation has: "
        "smaller batches, checkpoints (torch.utils.checkpoint), or smaller units (units=) take less"
        f" ({said.partition('. ')[0]})",
    )
