"""A bar for what takes long: by tqdm, where that is there and standard error is a terminal."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(text: str, total: int) -> Iterator[Callable[[int], object]]:
    """What is called with each number of bytes that is done, of this total."""
    if not sys.stderr.isatty() or importlib.util.find_spec("tqdm") is None:
        yield lambda size: None
        return
    tqdm = importlib.import_module("tqdm")
    with tqdm.tqdm(
        total=total, desc=f"tierd: {text}", unit="B", unit_scale=True, unit_divisor=1024, leave=False
    ) as shown:
        yield shown.update
