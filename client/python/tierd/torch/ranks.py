"""Which rank of how many this process is, by what its launcher says."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from tierd._core import Error
from tierd.torch.arguments import integer

# torchrun; Open MPI; Slurm.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def this_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Both, as they are given, else as the environment has them. tierd.Error: one alone is given, or they do not fit."""
    if rank is None and world_size is None:
        return from_environment()
    if rank is None or world_size is None:
        one, other = ("world_size", "rank") if rank is None else ("rank", "world_size")
        raise Error(
            errno.EINVAL, f"{one} is given, and {other} is not: give both, or neither, where a launcher says them"
        )
    rank, world_size = integer("rank", rank), integer("world_size", world_size)
    if not 0 <= rank < world_size:
        raise Error(errno.EINVAL, f"rank is {rank}, which is none of world_size={world_size}: ranks count from 0")
    return rank, world_size


def from_environment(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """(rank, world size); (0, 1) without a launcher. tierd.Error: only one of them is set, or they are no such
    numbers."""
    for rank, world_size in _LAUNCHERS:
        if rank not in environment and world_size not in environment:
            continue
        try:
            numbers = int(environment[rank]), int(environment[world_size])
        except (KeyError, ValueError):
            raise Error(
                errno.EINVAL, f"${rank} and ${world_size} do not say rank and world size: set both, or neither"
            ) from None
        if not 0 <= numbers[0] < numbers[1]:
            raise Error(errno.EINVAL, f"${rank} is {numbers[0]}, which is no rank of ${world_size}={numbers[1]}")
        return numbers
    return 0, 1
