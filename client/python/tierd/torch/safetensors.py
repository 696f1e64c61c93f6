"""Reads files of safetensors: a header of JSON with names, types, shapes and places, and then the values.

Values are mapped, so that nothing is read before it is used, and nothing has to be kept: they are the file's.
"""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tierd._core import Error

# More than any header has: what is not of the format has anything there.
_MOST_HEADER_BYTES = 100 << 20
# A flag of mmap(2) on Linux, which module mmap has from Python 3.13 on.
_MAP_NORESERVE = 0x4000

# By the names that the format has.
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Stored:
    """A tensor in a file that is mapped."""

    file: mmap.mmap
    dtype: torch.dtype
    shape: tuple[int, ...]
    first: int  # its first byte in the file
    size: int  # in bytes

    def values(self) -> torch.Tensor:
        """The values, which are the file's memory. Writing to them changes nothing in the file."""
        if self.size == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        if self.first % self.dtype.itemsize == 0:
            count = self.size // self.dtype.itemsize
            return torch.frombuffer(self.file, dtype=self.dtype, count=count, offset=self.first).view(self.shape)
        # The format does not align what it has after tensors of smaller elements.
        octets = torch.frombuffer(self.file, dtype=torch.uint8, count=self.size, offset=self.first)
        return octets.clone().view(self.dtype).view(self.shape)


def files_of(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of a checkpoint: one file that is named, or those of a folder, by its index where it has one.

    tierd.Error: there is none (ENOENT), or one is missing that the index names.
    """
    path = Path(folder)
    if path.is_file():
        return [path]
    index = next(iter(sorted(path.glob("*.safetensors.index.json"))), None)
    if index is None:
        found = sorted(path.glob("*.safetensors"))
        if not found:
            raise Error(errno.ENOENT, f"{path} has no *.safetensors: name a folder that save_pretrained() has written")
        return found
    names = sorted(set(_object(index, index.read_bytes()).get("weight_map", {}).values()))
    for name in names:
        if not (path / name).is_file():
            raise Error(errno.ENOENT, f"{path / name} is missing, which {index.name} names: download it again")
    return [path / name for name in names]


def tensors_of(path: Path) -> list[tuple[str, Stored]]:
    """All tensors of a file, in the order in which they lie there. tierd.Error: it is not of the format (EINVAL)."""
    with path.open("rb") as file:
        whole = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if whole < 8 or length > min(_MOST_HEADER_BYTES, whole - 8):
            raise Error(errno.EINVAL, f"{path} is no file of safetensors, or was cut off: download it again")
        header = _object(path, file.read(length))
        # Private, so that who writes to a parameter does not write to the file; the kernel need not have room for all.
        flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
        mapping = mmap.mmap(file.fileno(), whole, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    header.pop("__metadata__", None)
    found = [(name, _stored(path, mapping, 8 + length, name, fields)) for name, fields in header.items()]
    return sorted(found, key=lambda item: item[1].first)


def _stored(path: Path, mapping: mmap.mmap, start: int, name: str, fields: Any) -> Stored:
    try:
        dtype = DTYPES.get(fields["dtype"])
        shape = tuple(int(size) for size in fields["shape"])
        first, end = (int(offset) for offset in fields["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise Error(errno.EINVAL, f"the header of {path} is wrong at {name} ({error!r}): download it again") from None
    if dtype is None:
        raise Error(errno.ENOTSUP, f"{name} in {path} is of type {fields['dtype']}, which tierd does not read")
    is_whole = min(shape, default=0) >= 0 and math.prod(shape) * dtype.itemsize == end - first
    if not is_whole or first < 0 or start + end > len(mapping):
        raise Error(errno.EINVAL, f"{path} does not have all of {name}: download it again")
    return Stored(mapping, dtype, shape, start + first, end - first)


def _object(path: Path, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Error(errno.EINVAL, f"{path} is no JSON ({error}): download it again") from None
    if not isinstance(value, dict):
        raise Error(errno.EINVAL, f"{path} has no object of JSON: download it again")
    return value
