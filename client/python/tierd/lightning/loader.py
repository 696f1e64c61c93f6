"""Batches of a pass over the data, from where a job stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tierd.torch.kept import pack, random_states, set_random_states, unpack


class Loader:
    """A loader of the user's, whose attributes it has. Its next pass may be one that is gone on with."""

    __slots__ = ("_first", "_loader", "start")

    def __init__(self, loader: Iterable[Any], first: dict[str, Any] | None):
        """first: of the pass under way the random states before it, and how many batches of it are done; None: it begins."""
        self._loader = loader
        self._first = first
        self.start = b""  # random states, from which the loader makes its order

    def __iter__(self) -> Iterator[Any]:
        first, self._first = self._first, None
        if first is None:
            self.start = pack(random_states())
            return iter(self._loader)
        self.start = first["start"]
        return self._rest(first["done"])

    def _rest(self, done: int) -> Iterator[Any]:
        """What comes after so many batches. Begun with the first of them: until then a sampler may be told its epoch."""
        now = random_states()
        set_random_states(unpack(self.start, "the start of a pass"))
        batches = iter(self._loader)
        for _ in range(done):
            next(batches, None)
        set_random_states(now)
        yield from batches

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What Lightning sets is the loader's, such as worker_init_fn."""
        if name in Loader.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self._loader, name, value)
