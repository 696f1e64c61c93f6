"""Who holds a step up: tensors that share memory with weights, which the step would change."""

from __future__ import annotations

import errno
import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch

from tierd._core import Error
from tierd.torch.storage import Unit, is_hidden

# So many are named.
_MOST = 8

Addresses = Mapping[int, tuple[Unit, int, int]]


@contextmanager
def naming_holders(units: Iterable[Unit], addresses: Addresses) -> Iterator[None]:
    """Has the daemon's library's refusal (EBUSY), which tells of leases on units, tell of tensors and weights."""
    try:
        yield
    except Error as error:
        held = [unit for unit in units if unit.is_trained and unit.leases()] if error.errno == errno.EBUSY else []
        if not held:
            raise
        raise Error(errno.EBUSY, _sentence(held, addresses)) from error


def _sentence(held: list[Unit], addresses: Addresses) -> str:
    found = {unit: list(_tensors_of(unit, addresses)) for unit in held}
    named = [f"{text} of unit {unit.name}" for unit, texts in found.items() for text in dict.fromkeys(texts)]
    named += [
        f"a weight of unit {unit.name} (in a graph, or in an object that is not Python's)"
        for unit in held
        if not found[unit]
    ]
    more = f" and {len(named) - _MOST} more" if len(named) > _MOST else ""
    return (
        f"a tensor still shares memory with {', '.join(named[:_MOST])}{more}, which a step changes, and so does zero_grad() "
        "after backward(): take a copy instead (.clone()), or let the tensor go (del) before the step"
    )


def _tensors_of(unit: Unit, addresses: Addresses) -> Iterator[str]:
    """Of all tensors that Python has, those whose memory is the unit's; of a view not what it is a view of."""
    found: list[tuple[torch.Tensor, int]] = []
    for item in gc.get_objects():
        # By its type: some objects do something when they are asked for their class.
        if not issubclass(type(item), torch.Tensor) or is_hidden(item) or any(item is own for own in unit.parameters):
            continue
        try:
            place = addresses.get(item.untyped_storage().data_ptr())
        except (NotImplementedError, RuntimeError):
            continue
        if place is not None and place[0] is unit:
            found.append((item, place[1]))
    bases = {id(item._base) for item, _ in found}
    for item, tensor in found:
        if id(item) not in bases:
            yield f"weight {unit.name_of(tensor)} (a tensor of shape {list(item.shape)})"
