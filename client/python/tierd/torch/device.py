"""Where units are computed with: in the host's memory, as the daemon has them; or on a GPU, where the daemon has memory for
them (tier.py), or to which they are copied.

What must hold of copies:

- the lease on a unit is held until its copy is done, and no longer: no step waits for views on the GPU;
- a stream that computes waits for a copy before it reads it, and the copying one before it writes over what may still be
  read; no thread waits for either;
- the gradients of a unit are pushed when they are copied: who comes by looks, and a step waits for those that are left;
- copies are of values as they are: before a step, or another writing, all are forgotten.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from torch.utils.dlpack import from_dlpack
from typing_extensions import CapsuleType

from tierd._core import Error
from tierd.torch.arguments import wrong_type
from tierd.torch.cuda import Cuda, OutOfMemory, Stream
from tierd.torch.fetching import Copies, Lease, no_room
from tierd.torch.pinning import Pinning
from tierd.torch.pushing import Pushes, TierPushes
from tierd.torch.ranges import in_range
from tierd.torch.tier import Tier, say

if TYPE_CHECKING:
    from tierd.torch.membership import Membership
    from tierd.torch.storage import Addresses, Unit

Result = TypeVar("Result")


class Host:
    """The daemon's memory itself. A view of it has a share of the lease."""

    device = torch.device("cpu")
    # Whether autograd runs backward passes in the thread that calls it.
    is_backward_here = True

    def __init__(self, membership: Membership, addresses: Addresses):
        self._membership = membership
        self._addresses = addresses
        self._parameters = range(0)  # where the daemon has them

    # ---- Parameters

    def gather(self, unit: Unit) -> Lease:
        """The unit's version, and its tensors as they are computed with."""
        version, capsules = self._membership.capsules(unit.index, unit.name)
        tensors = _views(unit, capsules)
        for tensor, view in enumerate(tensors):
            self._note(unit, tensor, view, version)
        return version, tensors

    def _note(self, unit: Unit, tensor: int, view: torch.Tensor, version: int) -> None:
        address = view.untyped_storage().data_ptr()
        if address not in self._parameters and view.numel() > 0:
            self._membership.look()
        self._addresses[address] = (unit, tensor, version)

    def tensor(self, unit: Unit, tensor: int) -> tuple[int, torch.Tensor]:
        """One of a unit that nobody has gathered."""
        version, capsule = self._membership.capsule(unit.index, tensor, unit.name)
        view = unit.view(from_dlpack(capsule), tensor)
        self._note(unit, tensor, view, version)
        return version, view

    def join(self, unit: Unit) -> bool:
        """This thread uses a unit that was gathered before. False: it has to gather it again."""
        return True

    def let_go(self, unit: Unit) -> None:
        """A unit's tensors are no parameters any more."""

    # ---- Gradients

    def gradients(self, unit: Unit) -> list[torch.Tensor] | None:
        """A buffer for them. None: the iteration is void. -ENOBUFS: this rank holds all buffers itself."""
        capsules = self._membership.gradients(unit.index)
        return None if capsules is None else [from_dlpack(capsule) for capsule in capsules]

    def part(self, unit: Unit, buffer: torch.Tensor, gradient: torch.Tensor, before: Any) -> Any:
        """A gradient for the unit's buffer, in which is what came before, if anything did."""
        return buffer.copy_(gradient) if before is None else buffer.add_(gradient)

    def push(self, unit: Unit, absent: list[int], parts: list[tuple[torch.Tensor, Any]]) -> None:
        """Hands the buffers over, which the list alone has, with their parts."""
        parts.clear()
        self._membership.push(unit.index, absent)

    def push_all(self) -> None:
        """Nothing that was pushed is on its way any more."""

    # ---- The job

    def map(self) -> None:
        """The job is ready, maybe with new memory: what it had before may have gone, and other tensors come to lie there."""
        self._addresses.clear()
        first, size = self._membership.core.mappings()[0]
        self._parameters = range(first, first + size)

    def settle(self) -> None:
        """Before values change: what is on its way gets there, and no lease is left that nobody uses."""

    def lose(self) -> None:
        """The memory goes, and what was pushed is lost."""


def _views(unit: Unit, capsules: Iterable[CapsuleType]) -> list[torch.Tensor]:
    return [unit.view(from_dlpack(capsule), tensor) for tensor, capsule in enumerate(capsules)]


class Device(Host):
    """A GPU."""

    is_backward_here = False

    def __init__(self, membership: Membership, cuda: Cuda, addresses: Addresses, gpu_tier: bool | None):
        super().__init__(membership, addresses)
        self.device = cuda.device
        self._cuda = cuda
        self._pinning = Pinning(cuda)
        self._copies = Copies(cuda, self._pinning, addresses)
        self._tier = None if gpu_tier is False else Tier(cuda, membership, addresses, is_required=gpu_tier is True)
        self._copied = Pushes(cuda, membership)
        self._writers: list[Stream] = []  # of gradients in the daemon's memory on the GPU
        self._read_there: TierPushes | None = None  # None: gradients are copied to host memory here
        self._has_said = False
        self._ways: dict[Unit, Pushes | TierPushes] = {}  # of gradients that have a buffer
        self._lock = threading.Lock()  # of the mappings
        self._number = 0  # of those that are pinned; 0: none are

    def gather(self, unit: Unit) -> Lease:
        if self._cuda.is_captured():
            raise Error(
                errno.ENOTSUP,
                f"{unit.name} is gathered within the capture of a CUDA graph, which would keep addresses of memory that goes to "
                "other units: leave torch.cuda.graph and make_graphed_callables out",
            )
        self._look()
        if (lent := self._in_tier(lambda tier: tier.gather(unit))) is not None:
            return lent
        there = in_range("gather", unit.name, lambda: self._use(unit))
        self._fetch_ahead(unit)
        return there

    @property
    def has_tier(self) -> bool:
        """Whether the daemon has memory on the GPU for units, and no copies are made."""
        return self._tier is not None and self._tier.is_there

    def _in_tier(self, call: Callable[[Tier], Result]) -> Result | None:
        """What the call gives. None: the daemon has no memory there, or no more."""
        if self._tier is None or not self._tier.is_there:
            return None
        try:
            return call(self._tier)
        except Error as error:
            # ENODEV: the daemon has lost the GPU. PyTorch may have it still.
            if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV):
                raise
            self._tier.go_without(error)
            self._read_there = None
        return None

    def _use(self, unit: Unit) -> Lease:
        while (there := self._copies.use(unit)) is None:
            self._fetch(unit)
        return there

    def _fetch(self, unit: Unit) -> None:
        lease = self._lease_there(unit)
        if lease is None:
            # The daemon may wait for the room of those.
            self._copies.finish()
            version, capsules = self._membership.capsules(unit.index, unit.name)
            lease = version, _views(unit, capsules)
        if not self._is_mapped(lease):
            return
        try:
            self._copies.make(unit, lease, is_wanted=True)
        except OutOfMemory as error:
            said = str(error)
        else:
            return
        # Not within that: its frames have views of the lease.
        raise no_room(self._cuda, unit, said)

    def _fetch_ahead(self, unit: Unit) -> None:
        """Copies the unit that comes next, if it can be had now."""
        following = self._copies.order.follow(unit)
        if following is None or following in self._copies:
            return
        lease = self._lease_there(following)
        if (
            lease is None
            or (following.is_trained and lease[0] < self._membership.awaited)
            or not self._is_mapped(lease)
        ):
            return
        try:
            self._copies.make(following, lease, is_wanted=False)
        except OutOfMemory:
            return

    def _is_mapped(self, lease: Lease) -> bool:
        """False: its memory goes. A connection that was lost may have been opened again without a word, with other memory."""
        self._map()
        return all(self._pinning.has(tensor) for tensor in lease[1] if tensor.numel())

    def _lease_there(self, unit: Unit) -> Lease | None:
        """None: the unit is not in the host's memory now."""
        there = self._membership.capsules_there(unit.index)
        return None if there is None else (there[0], _views(unit, there[1]))

    def tensor(self, unit: Unit, tensor: int) -> tuple[int, torch.Tensor]:
        if (lent := self._in_tier(lambda tier: tier.tensor(unit, tensor))) is not None:
            return lent
        version, tensors = self._use(unit)
        return version, tensors[tensor]

    def join(self, unit: Unit) -> bool:
        if self._tier is not None and self._tier.is_there:
            return bool(self._in_tier(lambda tier: tier.join(unit)))
        self._copies.join(unit)
        # Else it lies in memory of the tier, which the job has gone on without.
        return unit in self._copies

    def let_go(self, unit: Unit) -> None:
        if self._tier is not None:
            self._tier.let_go(unit)
        self._copies.let_leases_go()

    # ---- Gradients

    def gradients(self, unit: Unit) -> list[torch.Tensor] | None:
        self._look()
        if self._read_there is not None:
            try:
                self._ways[unit] = self._read_there
                return self._read_there.gradients(unit)
            except Error as error:
                if error.errno not in (errno.ENOMEM, errno.EOPNOTSUPP):
                    raise
                self._read_there = None
                self._say(error)
        if self.has_tier:
            self._map()  # which gathers do that copy
        self._ways[unit] = self._copied
        return self._copied.gradients(unit)

    def _say(self, error: Error) -> None:
        """Why gradients are copied, once."""
        if not self._has_said:
            self._has_said = True
            say(self._cuda.device, "gradients are copied to host memory by PyTorch", error.strerror)

    def part(self, unit: Unit, buffer: torch.Tensor, gradient: torch.Tensor, before: Any) -> Any:
        return self._ways[unit].part(buffer, gradient, before)

    def push(self, unit: Unit, absent: list[int], parts: list[tuple[torch.Tensor, Any]]) -> None:
        self._ways[unit].push(unit, absent, parts)
        self._look()

    def push_all(self) -> None:
        self._copied.finish()

    def _look(self) -> None:
        self._copies.let_leases_go()
        self._copied.push_done()

    # ---- The job

    def map(self) -> None:
        if self._tier is not None:
            self._tier.look()
        self._read_there = TierPushes(self._cuda, self._membership, self._writers) if self.has_tier else None
        self._map()

    def _map(self) -> None:
        """A connection that was lost may have been opened again without a word, with other memory, even at the same
        addresses."""
        core = self._membership.core
        number, mappings = self._membership.until_it_stands(lambda: (core.watch(), core.mappings()))
        copied = not self.has_tier, self._read_there is None
        with self._lock:
            if (number, copied) != (self._number, self._pinning.copied):
                self._copies.await_all()
                self._pinning.unmap()
                self._copies.finish()
                self._pinning.map(mappings, copied)
                # What the daemon had on the GPU may have gone, and other tensors come to lie there.
                self._addresses.clear()
                self._number = number

    def settle(self) -> None:
        self._copied.finish()
        self._copies.forget()

    def lose(self) -> None:
        self._copied.discard()
        self._copies.forget()
        if self._tier is not None:
            self._tier.forget()
        self._number = 0
        self._pinning.unmap()


# ---- Which it is


def choose(model: nn.Module, device: Any) -> torch.device:
    """Where the model is computed: as is said, else where its parameters are. A GPU without a number is that of the local rank.

    TypeError, tierd.Error: it is no such device, or not there; parameters are on several.
    """
    found = {str(item.device): name for name, item in model.named_parameters() if not item.is_meta}
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise Error(
            errno.ENOTSUP,
            f"{first} is on {one} and {second} on {other}: each rank computes on one device, so put all on that, or on the "
            'processor and say device="cuda"',
        )
    if device is None:
        device = next(iter(found), "cpu")
    if not isinstance(device, str | torch.device):
        raise wrong_type("device", device, 'such as "cuda", "cuda:1" or "cpu" is wanted')
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = torch.device("meta")
    if chosen.type not in ("cpu", "cuda"):
        raise Error(errno.ENOTSUP, f'device is {str(device)!r}: models are computed on "cpu", or on GPUs as "cuda"')
    return chosen if chosen.type == "cpu" else _gpu(chosen.index)


def _gpu(index: int | None) -> torch.device:
    count = Cuda.count()
    if index is None:
        # Some launchers show each rank a GPU of its own.
        index = _local_rank() % count
    if index >= count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hint = "" if visible is None else f", as CUDA_VISIBLE_DEVICES={visible} has it"
        raise Error(errno.ENODEV, f"device is cuda:{index}, and there are {count}, which count from 0{hint}")
    return torch.device("cuda", index)


def _local_rank() -> int:
    names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
    found = [os.environ[name] for name in names if os.environ.get(name, "").isdecimal()]
    return int(found[0]) if found else torch.cuda.current_device() if torch.cuda.is_initialized() else 0


def memory_for(
    device: torch.device, membership: Membership, addresses: Addresses, *, gpu_tier: bool | None = None
) -> Host:
    if device.type == "cpu":
        return Host(membership, addresses)
    return Device(membership, Cuda(device.index), addresses, gpu_tier)


def move_buffers(model: nn.Module, device: torch.device) -> None:
    """As `model.to(device)` moves them."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.device != device:
                module._buffers[name] = buffer.to(device)
