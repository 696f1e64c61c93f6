"""The daemon's memory, pinned so that a GPU reads and writes it by itself; or a way around that."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

from tierd.torch.cuda import Cuda, Event, Stream

# Of parameters and of gradients: addresses and bytes.
Mappings = tuple[tuple[int, int], tuple[int, int]]
Pairs = Iterable[tuple[torch.Tensor, torch.Tensor]]


class Pinning:
    """The mappings of one job. Where that of the parameters cannot be pinned, values pass through memory that is."""

    def __init__(self, cuda: Cuda):
        self._cuda = cuda
        self.mappings: Mappings = ((0, 0), (0, 0))
        self.copied = (True, True)
        self._pinned: list[int] = []  # addresses
        self._ring: Ring | None = None

    def map(self, mappings: Mappings, copied: tuple[bool, bool] = (True, True)) -> None:
        """The job has these, which nothing was copied from or to yet. copied: which of the two are copied from, or to."""
        self.mappings = parameters, gradients = mappings
        self.copied = copied
        if copied[0] and not self._pin(parameters, is_read_only=True) and self._ring is None:
            self._ring = Ring(self._cuda)
            self._say("parameters pass through a pinned buffer")
        if copied[1] and gradients[1] > 0 and not self._pin(gradients, is_read_only=False):
            self._say("backward waits while gradients are copied")

    def _pin(self, mapping: tuple[int, int], *, is_read_only: bool) -> bool:
        is_pinned = self._cuda.pin(*mapping, is_read_only=is_read_only)
        if is_pinned:
            self._pinned.append(mapping[0])
        return is_pinned

    def _say(self, consequence: str) -> None:
        print(f"tierd: {self._cuda.device} cannot pin the daemon's memory: {consequence}", file=sys.stderr, flush=True)

    def unmap(self) -> None:
        """The mappings go. No copy may be under way."""
        self.mappings = ((0, 0), (0, 0))
        while self._pinned:
            self._cuda.unpin(self._pinned.pop())

    def has(self, parameter: torch.Tensor) -> bool:
        """Whether it lies in the mapping."""
        first, size = self.mappings[0]
        return first <= parameter.data_ptr() < first + size

    def copy_up(self, stream: Stream, pairs: Pairs) -> None:
        """Has the stream copy to the GPU."""
        if self._ring is None:
            self._cuda.copy(stream, pairs)
        else:
            for to, source in pairs:
                self._ring.copy(stream, to, source)


class Ring:
    """Pieces of pinned memory, in turns: values are copied there at once, and from there by a stream."""

    PIECE_BYTES = 8 << 20
    PIECES = 4

    def __init__(self, cuda: Cuda):
        self._cuda = cuda
        self._pieces: list[tuple[torch.Tensor, Event | None]] = [
            (cuda.pinned(self.PIECE_BYTES), None) for _ in range(self.PIECES)
        ]

    def copy(self, stream: Stream, to: torch.Tensor, source: torch.Tensor) -> None:
        """Waits where all pieces are on their way."""
        target, values = _bytes_of(to), _bytes_of(source)
        for first in range(0, len(values), self.PIECE_BYTES):
            part = values[first : first + self.PIECE_BYTES]
            piece, last = self._pieces.pop(0)
            if last is not None:
                self._cuda.finish(last)
            piece[: len(part)].copy_(part)
            self._cuda.copy(stream, [(target[first : first + len(part)], piece[: len(part)])])
            self._pieces.append((piece, self._cuda.record(stream)))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)
