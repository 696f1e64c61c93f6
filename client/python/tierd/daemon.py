"""Finds the node's daemon, or starts a private one where none listens.

A private daemon is a child of nobody, belongs to one launch (`tierd.launch`), and ends with it: with the last of the
ranks of a torchrun, srun or mpirun on this node, or with this process, whatever they die of. Under torchrun, which starts
ranks again, it stays until torchrun has ended. Its socket and its log lie in a folder of its own, which is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import select
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tierd._core import Error
from tierd.launch import Launch, this_launch
from tierd.memory import free_bytes

__all__ = ["default_budget", "find", "find_or_start", "find_running", "program", "split_nvme"]

_MIB = 1 << 20
# Less has room for no model that is worth it.
_LEAST_BUDGET = 64 * _MIB
_MOST_SOCKET_BYTES = 107
_PAUSE_MS = 10
# So long a daemon that was told to end has the folder for NVMe; the next one waits for it.
_ENDING_S = 10.0

# Descriptors that keep private daemons alive, by their folders: they are open as long as this process lives.
_held: dict[Path, int] = {}


def find_or_start(nvme: str | None = None, *, host_budget: int | None = None, flags: Sequence[str] = ()) -> str:
    """The path of a socket at which a daemon listens, for `tierd.Node`.

    Where $TIERD_SOCKET is set that is it, and no other: whether a daemon listens there is for `tierd.Node` to see, which
    can also wait for it. Else it is that of a daemon at one of the usual places; else that of a private daemon, which all
    ranks of this launch share, however many ask at once, and which a line on standard error tells of. The arguments are
    for a private one, and the same in all ranks.

    nvme: "FOLDER:SIZE", a folder on an NVMe disk and what may be used of it ("/data/nvme:200G"). The state of jobs that
        lies there outlives the daemon. None: nothing lies on NVMe.
    host_budget: bytes of memory. None: half of what is free now, and of what control groups leave.
    flags: more flags of tierd(8).

    tierd.Error: there is no tierd (ENOENT), too little memory (ENOMEM), nvme is not what it should be (EINVAL, ENOTDIR,
    EACCES), the daemon does not start and says why (ECHILD).
    """
    if nvme is not None:
        split_nvme(nvme)
    return os.environ.get("TIERD_SOCKET") or find() or _private(nvme, host_budget, flags)


def find_running() -> str | None:
    """As `find_or_start()`, but it starts none: at last it is the private one that this process has. None: there is none."""
    held = (str(folder / "tierd.sock") for folder in _held)
    return os.environ.get("TIERD_SOCKET") or find() or next(held, None)


def find() -> str | None:
    """The first of the usual places at which a daemon listens: $XDG_RUNTIME_DIR/tierd/tierd.sock,
    /run/tierd/tierd.sock."""
    folders = [os.environ.get("XDG_RUNTIME_DIR"), "/run"]
    sockets = [os.path.join(folder, "tierd", "tierd.sock") for folder in folders if folder]
    return next((path for path in sockets if _listens(path)), None)


# In a build folder; under the prefix of lib/python3/PACKAGES.
_PROGRAMS = {
    "tierd": ("../../../daemon/tierd", "../../../../bin/tierd", "../../../../sbin/tierd"),
    "tierctl": ("../../tierctl/tierctl", "../../../../bin/tierctl"),
}


def program(name: str = "tierd") -> str:
    """The one that was built or installed with this package, else that of $PATH; $TIERD, or $TIERCTL, names another one.

    tierd.Error: there is none (ENOENT).
    """
    beside = [Path(__file__).resolve().parent / place for place in _PROGRAMS[name]]
    variable = name.upper()
    chosen = os.environ.get(variable) or next((str(path) for path in beside if os.access(path, os.X_OK)), name)
    found = shutil.which(chosen)
    if found is None:
        where = f"at {chosen}" if os.sep in chosen else "in $PATH or beside the package"
        raise Error(errno.ENOENT, f"there is no {name} {where}: install it, or say in ${variable} where it is")
    return os.path.abspath(found)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except OSError:
            return False
        return True


def _private(nvme: str | None, host_budget: int | None, flags: Sequence[str]) -> str:
    launch = this_launch()
    folder = _folder_of(launch)
    path = str(folder / "tierd.sock")
    with _locked(folder):
        hold = _held.pop(folder, None)
        if hold is None or _is_over(hold):
            hold = _join(folder)
        if hold is None:
            try:
                hold = _start(folder, launch, _checked(nvme), host_budget or default_budget(), flags)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        _await(folder, hold)
        _held[folder] = hold
    return path


def _folder_of(launch: Launch) -> Path:
    digest = hashlib.sha256(launch.name.encode()).hexdigest()[:12]
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")
    folder = runtime / f"tierd-{os.getuid()}-{digest}"
    if not _is_own(runtime) or len(os.fsencode(folder / "tierd.sock")) > _MOST_SOCKET_BYTES:
        folder = Path("/tmp") / folder.name
    return folder


def _is_own(folder: Path) -> bool:
    """Whether only this user makes and renames what is there. That of whoever has become another user (su) is not."""
    try:
        status = folder.stat()
    except OSError:
        return False
    is_private = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_private and os.access(folder, os.W_OK | os.X_OK)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Makes the folder if it is not there; nobody else starts or ends a daemon in it meanwhile."""
    path = folder / "lock"
    while True:
        _make(folder)
        try:
            lock = path.open("a")
        except FileNotFoundError:
            continue
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever ended a daemon there has removed the folder, and this file with it.
            if path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                yield
                return


def _make(folder: Path) -> None:
    folder.mkdir(0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) != 0o700 or not stat.S_ISDIR(status.st_mode):
        raise Error(errno.EACCES, f"{folder} is no private folder of this user: remove it")


def _join(folder: Path) -> int | None:
    """Holds the daemon of this folder; None: there is none. A pipe without a reader cannot be opened for writing."""
    try:
        return os.open(folder / "ranks", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENXIO):
            raise
        return None


def _start(folder: Path, launch: Launch, nvme: str | None, budget: int, flags: Sequence[str]) -> int:
    """Has a watcher run a daemon, and holds that."""
    path = str(folder / "tierd.sock")
    command = [program(), "--config", str(folder / "tierd.conf"), "--socket", path]
    command += ["--state-dir", str(folder / "state"), "--host-budget", str(budget)]
    command += [*(["--nvme", nvme] if nvme else []), *flags]
    print(
        f"tierd: no daemon listens, so this starts a private one: {budget / (1 << 30):.1f} GiB of memory, "
        f"{nvme or 'nothing'} on NVMe; it ends with {launch.lifetime} (TIERD_SOCKET={path})",
        file=sys.stderr,
        flush=True,
    )
    return _watch(folder, launch, command)


def _watch(folder: Path, launch: Launch, command: Sequence[str]) -> int:
    ranks = folder / "ranks"
    ranks.unlink(missing_ok=True)
    os.mkfifo(ranks, 0o600)
    (folder / "tierd.conf").touch()
    # Before the watcher begins, so that it has seen a rank if there is none any more.
    reader = os.open(ranks, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    hold = os.open(ranks, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    launcher = -1 if launch.launcher is None else os.pidfd_open(launch.launcher)
    watcher = Path(__file__).with_name("watcher.py")
    try:
        # Isolated from the user's variables and packages.
        subprocess.run(
            [sys.executable, "-I", "-S", watcher, folder, str(reader), str(launcher), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[descriptor for descriptor in (reader, launcher) if descriptor >= 0],
            start_new_session=True,
            check=True,
        )
    finally:
        for descriptor in (reader, launcher):
            if descriptor >= 0:
                os.close(descriptor)
    return hold


def _await(folder: Path, hold: int) -> None:
    """Waits until the daemon listens. tierd.Error: it has ended instead."""
    while not _listens(str(folder / "tierd.sock")):
        # A pause that the watcher's end cuts short.
        if _is_over(hold, _PAUSE_MS):
            os.close(hold)
            lines = (folder / "log").read_text(errors="replace").splitlines() or ["it says nothing"]
            shutil.rmtree(folder, ignore_errors=True)
            raise Error(errno.ECHILD, f"the private daemon does not start: {lines[-1]}")


def _is_over(hold: int, timeout_ms: int = 0) -> bool:
    """Whether the daemon's watcher has ended."""
    poll = select.poll()
    poll.register(hold, 0)
    return bool(poll.poll(timeout_ms))


def split_nvme(nvme: str) -> tuple[str, str]:
    """The folder and the size. TypeError: it is no text. tierd.Error: it is not FOLDER:SIZE (EINVAL)."""
    if not isinstance(nvme, str):
        raise TypeError(f'nvme is {nvme!r}: a text FOLDER:SIZE is wanted, as "/data/nvme:200G" is')
    folder, _, size = nvme.partition(":")
    if not folder or not size:
        raise Error(errno.EINVAL, f'nvme="{nvme}" is not FOLDER:SIZE, as "/data/nvme:200G" is')
    return folder, size


def _checked(nvme: str | None) -> str | None:
    """The same with a path that leads there from any folder."""
    if nvme is None:
        return None
    folder, size = split_nvme(nvme)
    if not os.path.isdir(folder):
        raise Error(errno.ENOTDIR, f"{folder} is no folder: make it on an NVMe disk, or name another one")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Error(errno.EACCES, f"this user may not write to {folder}: change its owner, or name another folder")
    _await_end(folder)
    return f"{os.path.abspath(folder)}:{size}"


def _await_end(folder: str) -> None:
    """Waits for a daemon that uses the folder and is ending. tierd.Error: it is not (EBUSY)."""
    deadline = time.monotonic() + _ENDING_S
    while (holder := _holder(folder)) is not None:
        process, socket = holder
        is_there = socket is not None and _listens(socket)
        if is_there or time.monotonic() > deadline:
            share = f"to share it, set TIERD_SOCKET={socket}; else" if is_there else "end that, or"
            raise Error(
                errno.EBUSY, f"{folder} is used by the daemon of process {process}: {share} name another folder"
            )
        time.sleep(_PAUSE_MS / 1000)


def _holder(folder: str) -> tuple[int, str | None] | None:
    """The tierd that has a folder for NVMe: its process, and its socket, if that can be seen. None: nobody has it."""
    try:
        number = os.stat(os.path.join(folder, "tierd")).st_ino
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return None
    for words in locks:
        if words[1] == "FLOCK" and words[5].endswith(f":{number}"):
            process = int(words[4])
            with contextlib.suppress(OSError, ValueError):
                command = Path(f"/proc/{process}/cmdline").read_text().split("\0")
                return process, command[command.index("--socket") + 1]
            return process, None
    return None


def default_budget() -> int:
    """Bytes of memory that a private daemon gets: half of what is free. tierd.Error: that is too little (ENOMEM)."""
    half = free_bytes() // 2 // _MIB * _MIB
    if half < _LEAST_BUDGET:
        raise Error(
            errno.ENOMEM,
            f"half of the free memory is {half // _MIB} MiB, and a daemon needs {_LEAST_BUDGET // _MIB} MiB at least: "
            "end other programs, or raise the limit of this control group",
        )
    return half


def _let_go() -> None:
    """A forked child is no rank: it keeps nothing alive."""
    for hold in _held.values():
        os.close(hold)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
