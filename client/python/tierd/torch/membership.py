"""This rank's membership of the job: the calls of the data path, and what happens when the job has gone back to an
earlier step.

When a rank dies or the daemon is restarted, calls fail with `tierd.StaleError`. Where the training loop can go back
(`resumable()`), the membership makes the job ready again at once and the iteration under way is *void*: it runs to
its end with values that can be read, but what it computes counts for nothing, and the loop goes on from the step at
which the job stands. Where the loop cannot, the error goes to the caller.
"""

from __future__ import annotations

import enum
import errno
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch.autograd.profiler import record_function
from typing_extensions import CapsuleType

from tierd._core import Error, Job, StaleError, Ticket
from tierd.torch import compat
from tierd.torch.ranges import in_range

Result = TypeVar("Result")

# So long other ranks are waited for without a word.
PATIENCE_MS = 10_000


class Standing(enum.Enum):
    """Where this rank's iteration stands beside the job."""

    RUNNING = enum.auto()
    VOID = enum.auto()


class _Spoiled:
    """In the place of a job that this process cannot go on with."""

    def __init__(self, text: str):
        self._text = text

    def __getattr__(self, name: str) -> NoReturn:
        raise Error(errno.EFAULT, self._text)


def wait(ticket: Ticket) -> None:
    """Waits until a step is applied."""
    try:
        ticket.wait()
    except Error as error:
        if error.errno != errno.EDOM:
            raise
        remedy = (
            "nothing was updated, and the next backward() begins the step anew. torch.autograd.set_detect_anomaly(True) shows "
            "where it comes from; steps with a loss scale (loss_scale=, a GradScaler) are skipped instead"
        )
        raise Error(errno.EDOM, f"{error.strerror}: {remedy}") from None


class Membership:
    def __init__(self, core: Job):
        self.core: Job = core
        self.standing = Standing.RUNNING
        self.can_go_back = False
        self.is_in_loop = False  # that goes on from where the job stands, after an iteration that is void
        self.losses = 0  # how often the job has gone back
        self.step = 0  # at which the job was made ready last
        self.awaited = 0  # the step that was closed last: what is trained is of it, or it has failed
        self.tell_failure: Callable[[], object] = lambda: None  # raises what that step has failed with
        self.lost: Callable[[], None] = lambda: None  # called when what was pushed since the last step is lost
        # Called before the job is made ready; and when it is, or its memory is seen to be another one.
        self.unmapped: Callable[[], None] = lambda: None
        self.mapped: Callable[[], None] = lambda: None
        self._mappings = 0  # their number, for which that was called last
        self.settle: Callable[[], None] = lambda: None  # called before a step is closed, which changes values
        self.is_early = False  # all gradients of a unit are pushed at once
        # Called before the first gradient of a step, once; None: nobody wants to know.
        self.announce: Callable[[], None] | None = None
        # Called before a gradient is taken.
        self.check_open: Callable[[], None] = lambda: None
        # Called by a GradScaler with its scalar for overflows, and with what undoes its scale.
        self.overflow_wanted: Callable[[torch.Tensor, torch.Tensor], None] = lambda found, factor: None
        # Called with a parameter whose gradient was pushed, and is set to None or to zeros.
        self.given_up: Callable[[torch.Tensor], None] = lambda parameter: None

    @property
    def is_void(self) -> bool:
        return self.standing is Standing.VOID

    def ready(self) -> int:
        """Waits for all ranks; the step at which the job stands. Says for whom, where that takes long."""
        timeout_ms = PATIENCE_MS
        self.unmapped()
        while True:
            try:
                self.step = self.core.ready(timeout_ms)["step"]
                self._mappings = self.core.watch()
                self.mapped()
                return self.step
            except StaleError:
                # Another rank was lost while this one waited.
                continue
            except Error as error:
                if error.errno != errno.ETIMEDOUT or timeout_ms < 0:
                    raise
                print(f"tierd: waiting: {error.strerror}", file=sys.stderr, flush=True)
                timeout_ms = -1

    def attempt(self, call: Callable[[], Result]) -> Result | None:
        """None: the iteration is void, or has become so."""
        try:
            return None if self.is_void else call()
        except StaleError as error:
            self._go_back(error)
            return None

    def capsules(self, unit: int, name: str) -> tuple[int, tuple[CapsuleType, ...]]:
        """The version and tensors of a unit; its name is for the profiler."""
        if not compat.is_profiled():
            return self.until_it_stands(lambda: self.core.capsules(unit))
        # By itself, whether it waits cannot be seen.
        with record_function(f"tierd.gather {name}"):
            there = self.until_it_stands(lambda: self.core.capsules(unit, False))
            return there or in_range("wait", name, lambda: self.until_it_stands(lambda: self.core.capsules(unit)))

    def capsules_there(self, unit: int) -> tuple[int, tuple[CapsuleType, ...]] | None:
        """The same without waiting; None: the unit is not there."""
        return self.until_it_stands(lambda: self.core.capsules(unit, False))

    def capsule(self, unit: int, tensor: int, name: str) -> tuple[int, CapsuleType]:
        return in_range("gather", name, lambda: self.until_it_stands(lambda: self.core.capsule(unit, tensor)))

    def look(self) -> None:
        """Calls `mapped()` where that has to be: a connection that was lost may have been opened again without a word, with
        other memory. It takes longer than a gather of what is there."""
        mappings = self.until_it_stands(lambda: self.core.watch())
        if mappings != self._mappings:
            self.until_it_stands(lambda: self.mapped())
            # The job may have gone back meanwhile.
            self._mappings = max(self._mappings, mappings)

    def gradients(self, unit: int, stream: int | None = None) -> tuple[CapsuleType | None, ...] | None:
        """In host memory, or in the GPU's, for the stream. None: the iteration is void."""
        try:
            if self.is_void:
                return None
            announce, self.announce = self.announce, None
            if announce is not None:
                announce()
            return self.core.gradients(unit) if stream is None else self.core.gradients_on(unit, stream)
        except StaleError as error:
            self._go_back(error)
            return None

    def push(self, unit: int, absent: Iterable[int] = (), stream: int | None = None) -> None:
        """Hands over a unit's gradients, which has none of the absent tensors; on a GPU, with what the stream has to do."""
        try:
            if self.is_void:
                return
            if stream is None:
                self.core.push(unit, *absent)
            else:
                self.core.push_on(unit, stream, *absent)
        except StaleError as error:
            self._go_back(error)

    def phase(self, name: str) -> None:
        self.until_it_stands(lambda: self.core.phase(name))

    def close_step(
        self, rates: Mapping[str, Any], groups: Sequence[Mapping[str, Any]] | None, blobs: Mapping[str, bytes]
    ) -> Ticket | None:
        """Closes this rank's part of the step, with blobs that stay with it. None: the iteration is void."""

        def close() -> Ticket:
            for key, blob in blobs.items():
                self.keep(key, blob)
            return self.core.step(rates, groups)

        self.settle()
        return self.attempt(close)

    def keep(self, key: str, blob: bytes) -> None:
        """Gives the job a blob with the step that is closed next. tierd.Error: there is no room for it."""
        try:
            self.core.blob_set(key, blob)
        except Error as error:
            if error.errno != errno.ENOSPC:
                raise
            remedy = "keep less, or make a new job with more room: initialize(blob_bytes=…), for all ranks together"
            raise Error(errno.ENOSPC, f"{error.strerror}: {remedy}") from None

    def finish_step(self, ticket: Ticket) -> dict[str, Any] | None:
        """Waits until it is applied; what it did. None: it was lost, and the iteration is void."""
        try:
            wait(ticket)
            return ticket.result()
        except StaleError as error:
            self._go_back(error)
            return None

    def spoil(self, text: str) -> None:
        """Has every later call raise this."""
        self.core = cast(Job, _Spoiled(text))

    def until_it_stands(self, call: Callable[[], Result]) -> Result:
        """What a void iteration needs, too, from the job as it stands then."""
        while True:
            try:
                return call()
            except StaleError as error:
                self._go_back(error)

    def go_back(self) -> int:
        """Makes the job ready again, and the iteration under way void. The step at which the job stands."""
        self.standing = Standing.VOID
        self.losses += 1
        self.lost()
        self.core.discard_all()
        return self.ready()

    def _go_back(self, error: StaleError) -> None:
        said, to_be_called, _ = (error.strerror or "").partition("; call tierd_job_ready")
        if not self.can_go_back:
            if not to_be_called:
                raise error
            remedy = "start the script again, and it goes on; a loop over tierd.resumable(loader) goes on by itself"
            raise StaleError(errno.ESTALE, f"{said}: {remedy}") from None
        try:
            step = self.go_back()
        except Error as lost:
            if lost.errno != errno.ENODATA:
                raise
            remedy = "none of its values were on NVMe for good: start the script again, and it begins anew"
            raise Error(errno.ENODATA, f"{said}; {remedy}") from None
        print(f"tierd: the training goes back to step {step}: {said}", file=sys.stderr, flush=True)
