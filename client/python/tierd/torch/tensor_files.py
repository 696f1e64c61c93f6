"""Files of safetensors whose values are written one tensor after the other: the model is in no memory."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import torch

from tierd._core import Error
from tierd.torch.safetensors import NAMES


class TensorFile:
    """One file, of tensors that are announced in their order."""

    def __init__(self, path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]):
        self._path = path
        self._header = _header(tensors, metadata)
        self._file: BinaryIO | None = None
        self._left = list(tensors)

    def write(self, name: str, value: torch.Tensor) -> None:
        """The next tensor; after the last one the file is on the disk."""
        if self._file is None:
            self._file = self._path.open("wb")
            self._file.write(self._header)
        assert self._left.pop(0) == name
        value = value.detach().cpu().contiguous()
        if value.nbytes:
            self._file.write((ctypes.c_char * value.nbytes).from_address(value.data_ptr()))
        if not self._left:
            self._file.flush()
            os.fsync(self._file.fileno())
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _header(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        # Older readers of the format do not know complex numbers.
        if tensor.dtype not in NAMES or tensor.is_complex():
            raise Error(errno.EINVAL, f"{name} is {tensor.dtype}, which files of safetensors do not have")
        entries[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def split(tensors: Mapping[str, torch.Tensor], most: int) -> list[dict[str, torch.Tensor]]:
    """The tensors in their order, in files of so many bytes at most; what is larger has one for itself."""
    files: list[dict[str, torch.Tensor]] = [{}]
    used = 0
    for name, tensor in tensors.items():
        if files[-1] and used + tensor.nbytes > most:
            files.append({})
            used = 0
        files[-1][name] = tensor
        used += tensor.nbytes
    return files


@contextmanager
def new_folder(path: Path, needed: int) -> Iterator[Path]:
    """A folder of its own within the path, for so many bytes; it and what is left in it goes in the end.

    tierd.Error: nothing can be written there; of no room it says how much is needed, and how much there is.
    """
    folder = path / ".incomplete"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
    except Error:
        raise
    except OSError as error:
        free = shutil.disk_usage(path).free if path.exists() else 0
        raise Error(
            error.errno or errno.EIO,
            f"{path} cannot be written ({error.strerror}), and is as before: the model takes {needed:,} bytes, and "
            f"{free:,} are free there",
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
