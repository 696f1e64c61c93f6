"""Gradients on their way from a GPU to the daemon: pushed when they are copied to host memory, or from memory there that the
daemon reads."""

from __future__ import annotations

import errno
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.utils.dlpack import from_dlpack

from tierd._core import Error
from tierd.torch.cuda import Cuda, Event, Stream

if TYPE_CHECKING:
    from tierd.torch.membership import Membership
    from tierd.torch.storage import Unit


class Part(NamedTuple):
    """A gradient, and the stream that computes it."""

    gradient: torch.Tensor
    stream: Stream


@dataclass(eq=False)
class _Push:
    unit: Unit
    absent: list[int]
    pairs: list[tuple[torch.Tensor, torch.Tensor]]  # buffers and gradients, which stay until the event is done
    event: Event


class Pushes:
    """Those of one job that are copied to host memory, in their order."""

    def __init__(self, cuda: Cuda, membership: Membership):
        self._cuda = cuda
        self._membership = membership
        self._stream = cuda.stream()
        self._under_way: deque[_Push] = deque()
        self._lock = threading.RLock()

    def part(self, buffer: torch.Tensor, gradient: torch.Tensor, before: Part | None) -> Part:
        """A gradient as its buffer takes it, and what was there before added to it."""
        stream = self._cuda.current()
        if before is not None:
            if before.stream != stream:
                self._cuda.wait(stream, self._cuda.record(before.stream))
            gradient = before.gradient + gradient
        return Part(gradient.to(buffer.dtype).contiguous(), stream)

    def push(self, unit: Unit, absent: list[int], parts: list[tuple[torch.Tensor, Part]]) -> None:
        """Copies the parts to their buffers, which the list alone has, and pushes them then."""
        pairs = list(parts)
        parts.clear()
        with self._lock:
            for stream in {part.stream for _, part in pairs}:
                self._cuda.wait(self._stream, self._cuda.record(stream))
            copied = [(buffer, part.gradient) for buffer, part in pairs]
            self._cuda.copy(self._stream, copied)
            self._under_way.append(_Push(unit, absent, copied, self._cuda.record(self._stream)))

    def gradients(self, unit: Unit) -> list[torch.Tensor] | None:
        """A buffer of the daemon's for the unit: after the last one of it is pushed, or others if they have all of them."""
        with self._lock:
            while any(push.unit is unit for push in self._under_way):
                self._await_first()
        while True:
            try:
                capsules = self._membership.gradients(unit.index)
                return None if capsules is None else [from_dlpack(capsule) for capsule in capsules]
            except Error as error:
                with self._lock:
                    if error.errno != errno.ENOBUFS or not self._under_way:
                        raise
                    self._await_first()

    def push_done(self) -> None:
        """Pushes what is copied by now."""
        with self._lock:
            while self._under_way and self._cuda.is_done(self._under_way[0].event):
                self._push_first()

    def finish(self) -> None:
        """Waits until all are pushed."""
        with self._lock:
            while self._under_way:
                self._await_first()

    def _await_first(self) -> None:
        self._cuda.finish(self._under_way[0].event)
        self._push_first()

    def _push_first(self) -> None:
        push = self._under_way.popleft()
        push.pairs.clear()  # nobody may view a buffer that is pushed
        self._membership.push(push.unit.index, push.absent)

    def discard(self) -> None:
        """They are lost: waits until nothing is copied any more."""
        with self._lock:
            for push in self._under_way:
                self._cuda.finish(push.event)
            self._under_way.clear()


class TierPushes:
    """Those of one job that are computed into the daemon's memory on the GPU.

    The memory goes from unit to unit: whichever streams compute gradients, each comes after what the others were given before.
    """

    def __init__(self, cuda: Cuda, membership: Membership, streams: list[Stream]):
        """`streams` are those that have written there, and outlive it."""
        self._cuda = cuda
        self._membership = membership
        self._streams = streams

    def _follow(self) -> int:
        """This thread's stream, behind the others."""
        stream = self._cuda.current()
        if stream not in self._streams:
            self._streams.append(stream)
        for other in self._streams:
            if other != stream:
                self._cuda.wait(stream, self._cuda.record(other))
        return self._cuda.number(stream)

    def gradients(self, unit: Unit) -> list[torch.Tensor] | None:
        """A buffer for the unit. -ENOMEM: there is no room for any on the GPU."""
        capsules = self._membership.gradients(unit.index, self._follow())
        return None if capsules is None else [self._cuda.view(capsule) for capsule in capsules if capsule is not None]

    def part(self, buffer: torch.Tensor, gradient: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        """The gradient in the buffer, and what was there before."""
        self._follow()
        return buffer.copy_(gradient) if before is None else buffer.add_(gradient)

    def push(self, unit: Unit, absent: list[int], parts: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Hands a buffer over, which the list alone has. Nobody waits for what is computed there."""
        parts.clear()
        self._membership.push(unit.index, absent, self._follow())
