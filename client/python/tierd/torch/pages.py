"""Pages of this process' memory: which are there, and how they come and go."""

from __future__ import annotations

import array
import ctypes
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
# Since Linux 5.14; Python does not have it.
_POPULATE_WRITE = 23
# Looked at as one when it is asked what has been written.
_PIECE_BYTES = 1 << 20

# Bits of the first byte that /proc/self/pagemap has for a page.
_IN_MEMORY, _SWAPPED, _OF_A_FILE = 0x80, 0x40, 0x20


def make(address: int, size: int) -> None:
    """Makes all pages at once, to be written; a kernel that cannot makes each when it is written."""
    _libc.madvise(address, size, _POPULATE_WRITE)


def take_out(address: int, size: int) -> None:
    """Takes whole pages of a file that is mapped out of the process' memory; they come back when they are used.

    Values that were written stay where the mapping is shared: in the page cache, until they are on the disk.
    """
    _libc.madvise(address, size, mmap.MADV_DONTNEED)


def rest(tensor: torch.Tensor) -> None:
    """If a dense tensor lies in a mapped file, it leaves the process' memory until it is used again.

    Nothing is done if a page of it is the process' own, as where a private mapping was written, or there is no file.
    """
    if tensor.device.type != "cpu":
        return
    first, kinds = _kinds(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    if all(kind & _SWAPPED == 0 and kind & (_IN_MEMORY | _OF_A_FILE) != _IN_MEMORY for kind in set(kinds)):
        take_out(first * mmap.PAGESIZE, len(kinds) * mmap.PAGESIZE)


def written(address: int, size: int) -> Iterator[tuple[int, int]]:
    """The pieces, by offset and size, of which some page is there. A large allocation that nobody wrote has none."""
    first, kinds = _kinds(address, size)
    step = _PIECE_BYTES // mmap.PAGESIZE
    for i in range(0, len(kinds), step):
        if any(kind & (_IN_MEMORY | _SWAPPED) for kind in set(kinds[i : i + step])):
            begin = max(0, (first + i) * mmap.PAGESIZE - address)
            yield begin, min(size, (first + i + step) * mmap.PAGESIZE - address) - begin


def _kinds(address: int, size: int) -> tuple[int, bytes]:
    """The number of the first page, and a byte for each. Where the kernel does not tell they are the process' own."""
    first, last = address // mmap.PAGESIZE, (address + max(size, 1) - 1) // mmap.PAGESIZE
    entries = array.array("Q")
    count = last - first + 1
    try:
        with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
            file.seek(first * entries.itemsize)
            entries.frombytes(file.read(count * entries.itemsize))
    except OSError:
        pass
    if len(entries) != count:
        return first, bytes([_IN_MEMORY]) * count
    if sys.byteorder == "little":
        entries.byteswap()
    return first, entries.tobytes()[:: entries.itemsize]
