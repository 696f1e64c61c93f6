"""What torch.profiler shows of a job: a range for each gather, wait, push and step, while this thread is profiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch.autograd.profiler import record_function

from tierd.torch import compat

Result = TypeVar("Result")


def in_range(what: str, name: str, call: Callable[[], Result]) -> Result:
    """What the call gives. Its range is "tierd.WHAT NAME"."""
    if not compat.is_profiled():
        return call()
    with record_function(f"tierd.{what} {name}".rstrip()):
        return call()
