"""A parameter that follows a job's tensor: which one that is, where it lies, and how its values come there."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch.utils.dlpack import from_dlpack

from tierd import _core
from tierd._core import Error
from tierd.torch.compat import to_dlpack
from tierd.torch.storage import place_of
from tierd.torch.tensors import FORMATS, define_tensor
from tierd.torch.units import Entry, owned

# Where a parameter begins in memory that is the daemon's, too.
_ALIGNMENT = 64
_DTYPES = {number: dtype for dtype, number in FORMATS.items()}


class Followed:
    """One parameter, and the tensor of the job with its values."""

    def __init__(self, entry: Entry, unit: int, tensor: int, kind: int):
        self.parameter = entry.parameter
        self._names = entry.names
        self.unit = unit
        self.tensor = tensor
        # None: its bytes, which are the parameter's own.
        self._dtype = _DTYPES.get(kind)

    @property
    def nbytes(self) -> int:
        return self.parameter.nbytes

    def materialize(self, model: nn.Module) -> None:
        """Puts a parameter with memory in the place of one on meta, as to_empty() does."""
        if not self.parameter.is_meta:
            return
        there = torch.empty_like(self.parameter, device="cpu", memory_format=torch.contiguous_format)
        self._put(model, there)

    def _put(self, model: nn.Module, there: torch.Tensor) -> None:
        self.parameter = nn.Parameter(there, self.parameter.requires_grad)
        for name in self._names:
            module, _, own_name = name.rpartition(".")
            setattr(model.get_submodule(module), own_name, self.parameter)

    def can_move(self, shared: Collection[int]) -> bool:
        """Its values can be as the job's are, in other memory than now. shared: the storages of several."""
        values = self.parameter.detach()
        if type(values) is not torch.Tensor or values.numel() == 0 or values.dtype != (self._dtype or values.dtype):
            return False
        if values.is_meta:
            return True
        storage = values.untyped_storage()
        is_whole = values.is_contiguous() and storage.nbytes() == values.nbytes and id_of(values) not in shared
        return is_whole and values.device.type == "cpu" and not values.is_shared() and not values.is_pinned()

    def move(self, model: nn.Module, memory: torch.Tensor) -> None:
        values = self.parameter.detach()
        there = memory.view(values.dtype).view(values.shape)
        if values.is_meta:
            self._put(model, there)
        else:
            self.parameter.data = there.copy_(values)

    def spoil(self) -> None:
        with torch.no_grad():
            self.parameter.fill_(float("nan") if self.parameter.is_floating_point() else 0)

    def memory(self) -> torch.Tensor | None:
        """The parameter's own, where the job's values can go as they are."""
        values = self.parameter.detach()
        if values.device.type != "cpu" or not values.is_contiguous():
            return None
        if self._dtype is None:
            return values.view(-1).view(torch.uint8)
        return values if values.dtype == self._dtype else None

    def read_converted(self, reader: _core.Reader) -> None:
        """By way of other memory."""
        values = torch.empty(self.parameter.shape, dtype=self._dtype or self.parameter.dtype)
        target = values if self._dtype is not None else values.view(-1).view(torch.uint8)
        reader.read([(self.unit, self.tensor, to_dlpack(target))])
        with torch.no_grad():
            self.parameter.copy_(values)


def read(reader: _core.Reader, tensors: Sequence[Followed]) -> None:
    """Reads what the reader stands at."""
    direct = []
    for followed in tensors:
        memory = followed.memory()
        if memory is None:
            followed.read_converted(reader)
        else:
            direct.append((followed.unit, followed.tensor, to_dlpack(memory)))
            # No graph that was made before goes backward with these values.
            torch.autograd.graph.increment_version(followed.parameter)
    reader.read(direct)


def lend(model: nn.Module, reader: _core.Reader, tensors: Sequence[Followed]) -> _core.Memory | None:
    """Moves parameters to memory that the daemon writes to, with the values that they have."""
    storages = Counter(id_of(tensor) for tensor in (*model.parameters(), *model.buffers()) if not tensor.is_meta)
    shared = {storage for storage, count in storages.items() if count > 1}
    moved = [followed for followed in tensors if followed.can_move(shared)]
    sizes = [-(-followed.nbytes // _ALIGNMENT) * _ALIGNMENT for followed in moved]
    if not moved:
        return None
    memory = reader.memory(sum(sizes))
    for followed, end, size in zip(moved, accumulate(sizes), sizes, strict=True):
        followed.move(model, from_dlpack(memory.capsule(end - size, followed.nbytes)))
    return memory


def id_of(tensor: torch.Tensor) -> int:
    """Of its storage."""
    return tensor.untyped_storage().data_ptr()


# ---- Which tensor

Units = Sequence[tuple[str, Sequence[Mapping[str, Any]]]]


def match(model: nn.Module, units: Units, job: str, *, strict: bool) -> list[Followed]:
    """Finds each parameter in the job, by any of its names. tierd.Error: the first one that differs."""
    there = {(unit, i): fields for unit, (_, tensors) in enumerate(units) for i, fields in enumerate(tensors)}
    by_name = {name: place for place, fields in there.items() for name in (fields["name"], fields["alias"]) if name}
    _check_buffers(model)
    followed = []
    for entry, _ in owned(model):
        _check_parameter(entry)
        places = sorted({by_name[name] for name in entry.names if name in by_name})
        if not places:
            raise Error(errno.EINVAL, f"job {job} has no tensor {entry.names[0]}, which the model has: {_SAME}")
        if len(places) > 1:
            names = " and ".join(entry.names)
            raise Error(errno.EINVAL, f"{names} are one parameter of the model, and not in job {job}: {_SAME}")
        _check_same(entry, there[places[0]], job)
        followed.append(Followed(entry, *places[0], there[places[0]]["format"]))
    found = {(one.unit, one.tensor) for one in followed}
    missing = next((fields["name"] for place, fields in there.items() if place not in found), None)
    if strict and missing is not None:
        raise Error(
            errno.EINVAL, f"job {job} has a tensor {missing}, which the model has not: {_SAME}, or say strict=False"
        )
    return followed


_SAME = "make the model as its trainer does"


def _check_buffers(model: nn.Module) -> None:
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise Error(
                errno.EINVAL, f"buffer {name} is on meta, and a job has no values for buffers: make it in memory"
            )


def _check_parameter(entry: Entry) -> None:
    if place_of(entry.parameter) is not None:
        raise Error(
            errno.EINVAL,
            f"{entry.names[0]} is a parameter of a model on tierd, which has its job's values already: make another model",
        )


def _check_same(entry: Entry, fields: Mapping[str, Any], job: str) -> None:
    """Numbers are converted, and bytes are not."""
    own = define_tensor(entry.names, entry.parameter)
    if _kind(own) != _kind(fields):
        raise Error(
            errno.EINVAL,
            f"{entry.names[0]} is {_describe(own)} in the model, and {_describe(fields)} in job {job}: {_SAME}",
        )


def _kind(fields: Mapping[str, Any]) -> tuple[bool, tuple[int, ...], str | None]:
    return fields["format"] in _DTYPES, fields["shape"], fields.get("dtype")


def _describe(fields: Mapping[str, Any]) -> str:
    return fields.get("dtype") or f"{str(_DTYPES[fields['format']]).removeprefix('torch.')}{list(fields['shape'])}"
