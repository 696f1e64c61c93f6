"""Which launch this process belongs to: the ranks that one torchrun, srun or mpirun has on this node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# torchrun's, which all of its ranks have, and which it does not have itself.
_ELASTIC = "TORCHELASTIC_RUN_ID"
# A variable that only ranks have, and those that are the same for all of a launch: Slurm, Open MPI, ranks started by hand.
_LAUNCHES = (
    ("SLURM_PROCID", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    ("OMPI_COMM_WORLD_RANK", ("PMIX_NAMESPACE",)),
    ("RANK", ("MASTER_ADDR", "MASTER_PORT")),
)


@dataclass(frozen=True)
class Launch:
    """Ranks that share a node's memory."""

    #: The same for all ranks of the launch on this node, and for no others.
    name: str
    #: The process that starts ranks again when one has died, if there is such.
    launcher: int | None
    #: For people: what comes to an end when the launch does.
    lifetime: str


def this_launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """The launch of this process; its own where no launcher has started it."""
    if _ELASTIC in environment:
        launcher = _first_without(_ELASTIC, environment[_ELASTIC])
        return Launch(f"torchrun {environment[_ELASTIC]} {_identity(launcher)}", launcher, "torchrun")
    for rank, names in _LAUNCHES:
        if all(name in environment for name in (rank, *names)):
            return Launch(" ".join([rank, *(environment[name] for name in names)]), None, "the last rank")
    return Launch(f"process {_identity(os.getpid())}", None, "this process")


def _first_without(variable: str, value: str) -> int:
    """The nearest process above that was not started with this value: a rank may have shells in between."""
    process = os.getppid()
    while process > 1 and f"{variable}={value}".encode() in _environment(process):
        process = int(_status(process)[1])
    return process


def _environment(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        # Another user's: no rank of ours.
        return []


def _status(process: int) -> list[str]:
    """What follows a process' name in its stat, which proc(5) counts from 3."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _identity(process: int) -> str:
    """The process, and not a later one with its number."""
    return f"{process} {_status(process)[19]}"
