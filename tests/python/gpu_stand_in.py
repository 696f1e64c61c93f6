"""A GPU for tests, in place of tierd.torch.cuda.Cuda: its memory is the host's, and its streams do what they are told at once, or
as late as they may: when somebody waits for it.

What is copied to is poisoned until it is copied: who has not waited for it reads NaN. An error is raised where memory is written
over that may still be read, where it goes while it is copied from, and where it is unpinned then.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import tierd.torch.device


class Stream:
    """One that copies has work that it has not done yet; one that computes does all at once, in the thread that it is of."""

    def __init__(self, *, is_copying: bool) -> None:
        self.is_copying = is_copying
        self.issued = self.done = 0
        self.seen: dict[Stream, int] = {}  # of each other stream, up to where this one has waited
        self.awaited: set[Stream] = set()  # those of them for which it has since it copied last
        self.work: list[tuple[Callable[[], None], tuple[int, ...]]] = []  # and the addresses that it uses

    def issue(self, work: Callable[[], None], addresses: tuple[int, ...]) -> None:
        self.work.append((work, addresses))
        self.issued += 1

    def run(self, position: int) -> None:
        while self.is_copying and self.done < position:
            self.done += 1
            self.work.pop(0)[0]()


@dataclass(frozen=True)
class Event:
    stream: Stream
    position: int


@dataclass(eq=False)
class Memory:
    """Of the stand-in's own, as long as somebody has it."""

    array: weakref.ref[Any]
    address: int
    size: int
    writer: Stream | None = None  # the one that has copied to it last
    copied: Event | None = None  # that tells so
    readers: dict[Stream, int] = field(default_factory=dict)  # since then, and where they were when they began


class StandIn:
    """One GPU. The class has what tests set."""

    is_late = True
    can_pin = True
    room = 1 << 40
    gpus = 2

    @classmethod
    def count(cls) -> int:
        return cls.gpus

    def __init__(self, index: int) -> None:
        self.index = index
        self.device = torch.device("cpu")
        self.pins: dict[int, int] = {}
        self.is_capturing = False
        self.most = 0  # bytes that were in use at once
        self._memory: list[Memory] = []
        self._streams: list[Stream] = []  # those that copy
        self._thread = threading.local()
        self._lock = threading.RLock()

    # ---- Streams and events

    def stream(self) -> Stream:
        self._streams.append(Stream(is_copying=True))
        return self._streams[-1]

    def current(self) -> Stream:
        if not hasattr(self._thread, "stream"):
            self._thread.stream = Stream(is_copying=False)
        return self._thread.stream  # type: ignore[no-any-return]

    @contextmanager
    def computing_on(self, stream: Stream) -> Iterator[None]:
        """As torch.cuda.stream()."""
        before, self._thread.stream = self.current(), stream
        try:
            yield
        finally:
            self._thread.stream = before

    def is_captured(self) -> bool:
        return self.is_capturing

    def record(self, stream: Stream) -> Event:
        if not stream.is_copying:
            stream.issued += 1
        event = Event(stream, stream.issued)
        for memory in self._memory:
            if memory.writer is stream and memory.copied is None:
                memory.copied = event
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        with self._lock:
            stream.seen[event.stream] = max(event.position, stream.seen.get(event.stream, 0))
            stream.awaited.add(event.stream)
            if stream.is_copying:
                self._issue(stream, lambda: event.stream.run(event.position))
                return
            event.stream.run(event.position)
            for memory in self._memory:
                if memory.copied == event:
                    memory.readers.setdefault(stream, stream.issued)

    def is_done(self, event: Event) -> bool:
        """Who looks sees it go on by a little."""
        with self._lock:
            event.stream.run(min(event.position, event.stream.done + 1))
            return not event.stream.is_copying or event.stream.done >= event.position

    def finish(self, event: Event) -> None:
        with self._lock:
            event.stream.run(event.position)

    def _issue(self, stream: Stream, work: Callable[[], None], *addresses: int) -> None:
        stream.issue(work, addresses)
        if not self.is_late:
            stream.run(stream.issued)

    # ---- Memory

    def allocate(self, stream: Stream, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        size, used = shape.numel() * dtype.itemsize, self.in_use()
        if used + size > self.room:
            raise torch.cuda.OutOfMemoryError(f"the stand-in has {self.room} bytes. {used} are in use")
        self.most = max(self.most, used + size)
        return self._tensor(size, shape, dtype)

    def in_use(self) -> int:
        """Bytes."""
        return sum(memory.size for memory in self._memory if memory.array() is not None)

    def _tensor(self, size: int, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """Poisoned, and known as long as anybody has its storage."""
        array = np.full(size, 255, np.uint8)
        storage = torch.from_numpy(array).untyped_storage()
        self._memory = [memory for memory in self._memory if memory.array() is not None]
        self._memory.append(Memory(weakref.ref(array), storage.data_ptr(), size))
        tensor: torch.Tensor = torch.empty(0, dtype=dtype).set_(storage, 0, shape)  # type: ignore[call-overload]
        return tensor

    def pinned(self, size: int) -> torch.Tensor:
        return self._tensor(size, torch.Size([size]), torch.uint8)

    def let_go(self, memory: torch.Tensor, streams: Iterable[Stream]) -> None:
        own = self._at(memory)
        readers = set(own.readers) if own is not None else set()  # of nothing
        assert readers <= set(streams), "a stream that may read the memory is not told of its end"

    def copy(self, stream: Stream, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
        with self._lock:
            for to, source in pairs:
                assert to.shape == source.shape
                assert to.dtype == source.dtype
                assert to.is_contiguous()
                assert source.is_contiguous()
                self._copy(stream, to, source)
            stream.awaited.clear()

    def _copy(self, stream: Stream, to: torch.Tensor, source: torch.Tensor) -> None:
        target, origin, size = to.data_ptr(), source.data_ptr(), to.nbytes
        if (memory := self._at(to)) is not None:
            for reader, position in memory.readers.items():
                assert stream.seen.get(reader, 0) > position, "memory is written over that may still be read"
            memory.readers.clear()
            memory.writer, memory.copied = stream, None
            is_pinned = any(first <= origin < first + length for first, length in self.pins.items())
            assert is_pinned or size == 0 or not self.can_pin or self._at(source), "the GPU cannot read this by itself"
        elif self._at(source) is None:
            assert self.current() in stream.awaited, "what is copied may not be computed yet"
        is_there, is_source_there = self._life(to), self._life(source)
        ctypes.memset(target, 255, size)

        def work() -> None:
            assert is_source_there() is not None, "what is copied from has gone before"
            if is_there() is not None:
                ctypes.memmove(target, origin, size)

        self._issue(stream, work, target, origin)

    def _life(self, tensor: torch.Tensor) -> Callable[[], object]:
        memory = self._at(tensor)
        return weakref.ref(tensor) if memory is None else memory.array

    def _at(self, tensor: torch.Tensor) -> Memory | None:
        address = tensor.data_ptr()
        for memory in self._memory:
            if memory.address <= address < memory.address + memory.size and memory.array() is not None:
                return memory
        return None

    def pin(self, address: int, size: int, *, is_read_only: bool) -> bool:
        assert address not in self.pins
        if self.can_pin:
            self.pins[address] = size
        return self.can_pin

    def unpin(self, address: int) -> None:
        size = self.pins.pop(address)
        for stream in self._streams:
            used = [each for _, addresses in stream.work for each in addresses]
            assert not any(address <= each < address + size for each in used), "what is copied is unpinned"


def compute_there(kind: str) -> None:
    """Has models whose device is not said computed on it; its streams are "late" or "early"."""
    StandIn.is_late = {"late": True, "early": False}[kind]
    compute_all_on(StandIn, gpu_tier=False)


def compute_all_on(gpu: type[StandIn], *, gpu_tier: bool) -> None:
    devices: Any = tierd.torch.device
    devices.Cuda = gpu
    module: Any = sys.modules["tierd.torch.initialize"]
    module.choose = lambda model, device: devices.choose(model, "cuda" if device is None else device)
    module.arguments.gpu_tier = lambda value, options, device: gpu_tier if device.type != "cpu" else None
