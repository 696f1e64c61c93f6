"""`follow()`: a model has the parameters of a job that another process trains, as of its last applied step."""

from __future__ import annotations

import errno
import os
import threading
import time
from types import TracebackType
from typing import Self

from torch import nn

from tierd import _core
from tierd._core import Error, StaleError
from tierd.daemon import find_running
from tierd.torch import arguments
from tierd.torch.followed import lend, match, read

# A daemon, a job and its values can still come.
_NOT_YET = {errno.ENOENT, errno.ECONNREFUSED, errno.EBUSY, errno.EAGAIN}
# The connection, which had better be opened again.
_LOST = {errno.ECONNRESET, errno.EPROTO, errno.ETIMEDOUT}
# Another connection does not mend these.
_FINAL = {errno.ENOMEM, errno.EPERM, errno.ETIMEDOUT, errno.ECHILD}
_PAUSE_S = 0.05


class Follower:
    """What `follow()` gives; `model` is the model, `job` the job's name."""

    def __init__(
        self,
        model: nn.Module,
        job: str,
        strict: bool,
        snapshot: str | None,
        owner: int,
        socket: str | None,
        reconnect_ms: int,
    ):
        self.model = model
        self.job = job
        self._is_strict = strict
        self._snapshot = snapshot
        self._owner = owner
        self._socket = socket
        self._reconnect_ms = reconnect_ms
        self._lock = threading.Lock()
        self._step: int | None = None
        self._is_mixed = False  # the parameters are of two steps
        self._is_slow = False  # the job has been faster than the reading: the daemon keeps a copy for that
        self._reader: _core.Reader | None = None
        self._memory: _core.Memory | None = None  # of parameters, to which the daemon writes
        self._open(reconnect_ms=0)
        for tensor in self._tensors:
            tensor.materialize(model)

    @property
    def step(self) -> int | None:
        """Of which all parameters are. None: of no step, before the first refresh, and after one that has failed in
        the middle."""
        return self._step

    def refresh(self) -> int:
        """Gives the model the parameters of the job's last applied step, all of the same one, and returns the step.

        Waits for a step that is being applied, but not for a new one: if there is none it does nothing. Trainers do not
        wait for it. Values go into the memory that the parameters have, so a graph that was made before it cannot go
        backward. After a rollback, or with a daemon that was restarted (`reconnect_ms`), it goes on by itself.

        Raises:
            tierd.Error: the job is gone (ENOENT), has no values (EBUSY) or is broken (EIO), is another one than the model
                (EINVAL), or no daemon answers: the model keeps the parameters that it has. The connection is lost in the
                middle of reading, and does not come back: they are NaN. The daemon has no memory for a copy of the
                parameters (ENOMEM), which it keeps if the job goes on while they are read.
        """
        with self._lock:
            if self._reader is None:
                raise Error(errno.EBADF, f"this follower of job {self.job} is closed: call follow() again")
            try:
                return self._refresh_or_mend()
            finally:
                if self._is_mixed:
                    self._spoil()

    def close(self) -> None:
        """Ends the reading. The model keeps the parameters that it has."""
        with self._lock:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Follower of job {self.job}, at step {self._step}>"

    # ---- Readers

    def _open(self, reconnect_ms: int) -> None:
        node = _core.Node(self._socket or find_running(), reconnect_ms)
        reader = node.open_reader(self.job, self._owner, self._snapshot)
        self._tensors = match(self.model, reader.units(), self.job, strict=self._is_strict)
        self._lend(reader)
        self._reader = reader
        self._is_kept = self._has_read = False

    def _lend(self, reader: _core.Reader) -> None:
        """Without such memory values come through the reader's window."""
        try:
            if self._memory is not None:
                reader.renew(self._memory)
            elif self._reader is None:
                self._memory = lend(self.model, reader, self._tensors)
        except Error as error:
            # The daemon may still write to the memory what was being read.
            if error.errno in _LOST or self._is_mixed:
                raise

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # ---- Values

    def _refresh_or_mend(self) -> int:
        try:
            return self._refresh()
        except StaleError:
            self._is_slow = True
        except Error as error:
            if error.errno in _FINAL:
                raise
            # The connection was lost, or the job was rolled back, or is another one of its name by now.
            self._open(self._reconnect_ms)
        return self._refresh()

    def _refresh(self) -> int:
        assert self._reader is not None
        step = self._reader.refresh("parameter" if self._is_slow and not self._is_kept else None)
        self._is_kept = self._is_slow
        if step != self._step or not self._has_read:
            self._is_mixed = True
            read(self._reader, self._tensors)
            self._is_mixed, self._has_read, self._step = False, True, step
        return step

    def _spoil(self) -> None:
        """Nobody computes with parameters of two steps."""
        self._is_mixed, self._step = False, None
        for tensor in self._tensors:
            tensor.spoil()


def follow(
    model: nn.Module,
    *,
    job: str,
    strict: bool = True,
    wait_s: float = 0.0,
    snapshot: str | None = None,
    owner: int | None = None,
    socket: str | os.PathLike[str] | None = None,
    reconnect_ms: int = 30_000,
) -> Follower:
    """Has a model follow a job that another process trains: each `refresh()` gives it the parameters of the last step.

    The job may be trained meanwhile, or be idle. No rank waits for followers, and they change nothing.

        policy = AutoModelForCausalLM.from_config(config)
        follower = tierd.follow(policy, job="policy")
        while True:
            step = follower.refresh()
            samples = policy.generate(…)

    Args:
        model: of the same names and shapes as the one that is trained. A parameter of another floating-point type gets the
            values converted, as `copy_()` converts them. On `meta` it gets memory. It may be on any device. One of the job's
            type in host memory gets other memory, with the values that it has: the daemon writes there, and processes that
            are forked afterwards share it.
        job: the job's name.
        strict: the job has no tensors but the model's. False: it may have more, such as a head that is only trained.
        wait_s: seconds to wait for a daemon, for the job, and for its first values, if they are not there.
        snapshot: the name of a snapshot of the job, which is read in place of its last step.
        owner: user id of the job's owner, if it is shared with this user; None: this user.
        socket: where the daemon listens; None: $TIERD_SOCKET, else the usual places, else this process' private one. None is
            started.
        reconnect_ms: how long `refresh()` waits for a daemon that is restarted.

    Returns:
        A Follower. The model has its own values until the first `refresh()`.

    Raises:
        TypeError: an argument is of a wrong type.
        tierd.Error: no such job (ENOENT), or it has no values yet (EBUSY); a tensor that only one of both has, or that
            differs (EINVAL): the first one is named; a model that is on tierd itself (EINVAL).
    """
    arguments.module(model)
    arguments.text("job", job)
    deadline = time.monotonic() + arguments.real("wait_s", wait_s)
    socket = arguments.socket_path(socket)
    while True:
        try:
            return Follower(model, job, strict, snapshot, -1 if owner is None else owner, socket, reconnect_ms)
        except Error as error:
            if error.errno not in _NOT_YET or time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)
