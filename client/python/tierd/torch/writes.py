"""Writes to parameters in place, which end as an exception instead of SIGSEGV.

Gathered memory is the daemon's, for all ranks, and mapped read-only. What goes through torch's functions of a parameter
is refused before (storage.py); what writes by `p.data`, a view or a kernel of its own meets the page, and this. The write
goes to a copy, which is taken away again before the exception is raised.
"""

from __future__ import annotations

import sys
from types import FrameType

from tierd import _core
from tierd.torch.job import open_jobs


def catch_writes() -> None:
    """Has writes raise from now on. Outside of the main thread it cannot be: then a line says so, and they end the process."""
    try:
        _core.catch_writes(_written)
    except ValueError:
        print(
            "tierd: initialize() runs in another thread than the main one: whoever writes to a parameter in place gets SIGSEGV, "
            "and no exception that names it",
            file=sys.stderr,
            flush=True,
        )


def _written(signal: int, frame: FrameType | None) -> None:
    address = _core.written_address()
    written = "memory of a parameter"
    for job in list(open_jobs):
        is_undone = job.undo_writes()
        name = job.name_at(address)
        written = name or written
        if name is not None and not is_undone:
            job.spoil(
                f"{name} was written in place. Its memory is the daemon's, so the write went to a copy that this process "
                f'alone has. Job "{job.name}" is as it was after its last step, but this process cannot go on with it: '
                "start it again, and give a model other values by model.load_state_dict()"
            )
    raise RuntimeError(
        f"{written} was written in place. Its memory is the daemon's, so the write was undone: give a model other values by "
        "model.load_state_dict(), on all ranks"
    )
