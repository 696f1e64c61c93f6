"""Units in the memory of a GPU that the daemon owns: parameters view it, and nothing is copied by the trainer.

A lease is for streams: each that computes with a unit waits for its values, and the memory is used again when each has done
what it was given before the last view went. Which unit comes next the daemon knows from the order of earlier steps.
"""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

import torch

from tierd import _core
from tierd._core import Error, StaleError
from tierd.torch.cuda import Cuda
from tierd.torch.ranges import in_range

if TYPE_CHECKING:
    from tierd.torch.membership import Membership
    from tierd.torch.storage import Addresses, Unit


UNITS_ARE_COPIED = "each unit is copied to memory of PyTorch's"


class Tier:
    """What one job has on the GPU, if it has anything there."""

    def __init__(self, cuda: Cuda, membership: Membership, addresses: Addresses, *, is_required: bool):
        self._cuda = cuda
        self._membership = membership
        self._addresses = addresses
        self._is_required = is_required
        self._leases: dict[Unit, _core.Lease] = {}  # of what somebody computes with; each view has a share of its own
        self._said = ""
        self.is_there = False

    def look(self) -> None:
        """The job is ready. tierd.Error: it has to have memory there, and has none."""
        self.is_there = self._membership.core.state()["gpu_bytes"] > 0
        if self.is_there:
            return
        try:
            self._membership.core.gather_on(0, self._cuda.number(self._cuda.current()))
        except StaleError:
            return
        except Error as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self.go_without(error)

    def go_without(self, error: Error) -> None:
        """Says why units are copied instead, once. tierd.Error: the user wants no copies."""
        self.is_there = False
        reason = (error.strerror or "").partition("; call tierd_gather")[0]
        if self._is_required:
            raise Error(errno.EOPNOTSUPP, f"gpu_tier=True: {reason}; gpu_tier=None copies units instead") from None
        if reason != self._said:
            self._said = reason
            say(self._cuda.device, UNITS_ARE_COPIED, reason)

    # ---- Units

    def gather(self, unit: Unit) -> tuple[int, list[torch.Tensor]]:
        """Its version, and views of it for what this thread's stream is given from now on."""
        lease = self._leases[unit] = self._lease(unit)
        self._membership.look()
        views = [unit.view(self._cuda.view(capsule), tensor) for tensor, capsule in enumerate(lease.capsules())]
        for tensor, view in enumerate(views):
            self._note(unit, tensor, view, lease.version)
        return lease.version, views

    def tensor(self, unit: Unit, tensor: int) -> tuple[int, torch.Tensor]:
        """One of a unit that nobody has gathered."""
        lease = self._lease(unit)
        view = unit.view(self._cuda.view(lease[tensor].__dlpack__(stream=-1)), tensor)
        self._note(unit, tensor, view, lease.version)
        return lease.version, view

    def _lease(self, unit: Unit) -> _core.Lease:
        stream = self._cuda.number(self._cuda.current())
        return in_range(
            "gather",
            unit.name,
            lambda: self._membership.until_it_stands(lambda: self._membership.core.gather_on(unit.index, stream)),
        )

    def _note(self, unit: Unit, tensor: int, view: torch.Tensor, version: int) -> None:
        # Of nothing it is 0.
        if address := view.untyped_storage().data_ptr():
            self._addresses[address] = (unit, tensor, version)

    def join(self, unit: Unit) -> bool:
        """Another stream may have gathered the unit. False: it has to be gathered again, for the job has gone on without."""
        lease = self._leases.get(unit)
        try:
            if lease is not None:
                lease.use_on(self._cuda.number(self._cuda.current()))
        except StaleError:
            lease = None
        return lease is not None

    def let_go(self, unit: Unit) -> None:
        """Views of it may stay, with what they have of the lease."""
        self._leases.pop(unit, None)

    def forget(self) -> None:
        """The memory goes."""
        self._leases.clear()


def say(device: torch.device, what: str, reason: str | None) -> None:
    """What is done instead, for lack of memory of the daemon's."""
    print(f"tierd: {device}: {what}: {reason}", file=sys.stderr, flush=True)
