"""Trainers in children that are forked after the imports, which take longer than what tests train."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from conftest import PATIENCE
from tierd.torch.job import open_jobs

_forking = multiprocessing.get_context("fork")

# A child has none of the threads of its parent, and would wait for them.
torch.set_num_threads(1)
# Late imports of optimizers take seconds, and happen once, here.
torch.compiler.disable(id)


class Child:
    """A process that runs a function, and then closes its jobs in good order. `stdout` has the lines that it prints.

    `environment` is added to the one of this process. It ends after PATIENCE, as all that hangs.
    """

    def __init__(self, work: Callable[..., object], *args: Any, **environment: str):
        here, there = os.pipe()
        self.stdout = os.fdopen(here)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = _forking.Process(target=self._run, args=(there, environment, work, args))
        self._process.start()
        os.close(there)

    def _run(
        self, output: int, environment: dict[str, str], work: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        signal.alarm(PATIENCE)
        os.dup2(output, 1)
        os.dup2(self._errors.fileno(), 2)
        os.close(output)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        os.environ.update(environment)
        open_jobs.clear()  # the parent's
        work(*args)
        for job in list(open_jobs):
            job.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """0, what it said, the negative number of a signal, or None while it runs."""
        return self._process.exitcode

    def kill(self) -> None:
        """Ends it as a crash does."""
        self._process.kill()

    def communicate(self) -> tuple[str, str]:
        """Waits for its end; what it has printed since somebody has read that, and its errors."""
        said = self.stdout.read()
        self._process.join()
        self._errors.seek(0)
        return said, self._errors.read()

    def assert_killed(self) -> None:
        """Waits for its end, which is that of kill -9."""
        errors = self.communicate()[1]
        assert self.returncode == -signal.SIGKILL, errors

    def result(self) -> str:
        """The same of one that ends well: what it has printed."""
        said, errors = self.communicate()
        assert self.returncode == 0, errors
        return said


def start_ranks(world_size: int, work: Callable[..., object], *args: Any, **environment: str) -> list[Child]:
    """Ranks, as torchrun starts them."""
    size = str(world_size)
    shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "GROUP_RANK": "0", **meeting(), **environment}
    return [Child(work, *args, RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(world_size)]


def meeting() -> dict[str, str]:
    """Where ranks make a process group."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}


def start_script(path: Path, *arguments: str, **environment: str) -> Child:
    """A script with its arguments, as Python runs it."""

    def run() -> None:
        sys.argv = [str(path), *arguments]
        runpy.run_path(str(path), run_name="__main__")

    return Child(run, **environment)
