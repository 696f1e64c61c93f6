"""Runs a private daemon for as long as somebody needs it: watcher.py FOLDER RANKS LAUNCHER COMMAND…

A program of its own, in a session of its own, so that nothing that ends ranks ends it. RANKS is the end for reading of a
pipe that each rank holds open for writing: the kernel closes it, whatever the rank dies of. LAUNCHER is the descriptor of
a process that starts ranks again, or -1: until that has ended the daemon stays, also without ranks. FOLDER is removed at
the end. It imports nothing of the package, and is small in memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1


def _die_with_watcher() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Daemon:
    """The child."""

    def __init__(self, folder: str, command: list[str]) -> None:
        self.folder = folder
        self.command = command
        self.socket = os.path.join(folder, "tierd.sock")
        self.start()

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        with open(os.path.join(self.folder, "log"), "ab") as log:
            # There are no other threads.
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_watcher,  # noqa: PLW1509
            )
        self.descriptor = os.pidfd_open(self.process.pid)

    def start_again(self) -> bool:
        """After its end. Not if it could not start, or gave up: that would only happen again."""
        os.close(self.descriptor)
        status = self.process.wait()
        # Who is killed leaves its socket, if it had one.
        if status > 0 or (status < 0 and not os.path.exists(self.socket)):
            return False
        with contextlib.suppress(OSError):
            print("tierd: the private daemon was ended from outside, and is started again", file=sys.stderr)
        self.start()
        return True

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def _ready(*descriptors: int, timeout_ms: int | None = None) -> set[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(timeout_ms)}


def _end(daemon: Daemon, ranks: int) -> bool:
    """Ends the daemon if there is still no rank. Whoever holds the lock may be one that joins."""
    with open(os.path.join(daemon.folder, "lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _ready(ranks, timeout_ms=0):
            return False
        daemon.stop()
        shutil.rmtree(daemon.folder, ignore_errors=True)
        return True


def watch(daemon: Daemon, ranks: int, launcher: int) -> int:
    # Who has no writer is ready all the time, so this waits for one after the other.
    awaited = [launcher, ranks] if launcher >= 0 else [ranks]
    while True:
        ready = _ready(awaited[0], daemon.descriptor)
        if awaited[0] not in ready:
            if not daemon.start_again():
                return 1
        elif len(awaited) > 1:
            awaited.pop(0)
        elif _end(daemon, ranks):
            return 0


def main() -> int:
    folder, ranks, launcher, *command = sys.argv[1:]
    # The rank that starts it has no child that it does not know of.
    if os.fork():
        return 0
    os.chdir("/")
    # Old files in /tmp are removed, but not from a folder that is locked.
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    return watch(Daemon(folder, command), int(ranks), int(launcher))


if __name__ == "__main__":
    sys.exit(main())
