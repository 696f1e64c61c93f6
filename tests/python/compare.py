"""Compares models, or dictionaries of tensors, and names the first element that differs, with both values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

Tensors = Mapping[str, Tensor] | nn.Module

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def assert_same_bits(ours: Tensors, theirs: Tensors) -> None:
    """Fails unless all tensors have the same names, shapes, formats and bits; zeros of two signs differ."""
    _fail(difference(ours, theirs))


def assert_close(ours: Tensors, theirs: Tensors, tolerance: float) -> None:
    """Fails where an element differs by more than an absolute tolerance; NaN is close to nothing."""
    _fail(difference(ours, theirs, tolerance))


def assert_losses_close(ours: Sequence[float], theirs: Sequence[float], tolerance: float) -> None:
    """Fails at the first step whose loss differs by more than a tolerance; 0 wants the same bits."""
    assert len(ours) == len(theirs), f"{len(ours)} losses, expected {len(theirs)}"
    for step, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert abs(our - their) <= tolerance, f"the loss of step {step} is {our!r}, expected {their!r}"


def difference(ours: Tensors, theirs: Tensors, tolerance: float | None = None) -> str | None:
    """The first difference in a sentence, in the order of `theirs`; None if there is none."""
    left, right = _tensors(ours), _tensors(theirs)
    for name in [*right, *left]:
        if name not in left or name not in right:
            return f"{name} is missing in {'the first' if name not in left else 'the second'}"
    differing = [text for name in right if (text := _differs(name, left[name], right[name], tolerance))]
    if not differing:
        return None
    return f"{differing[0]}; {len(differing)} of {len(right)} tensors differ"


def _differs(name: str, ours: Tensor, theirs: Tensor, tolerance: float | None) -> str | None:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{name} is {ours.dtype}{list(ours.shape)}, expected {theirs.dtype}{list(theirs.shape)}"
    if tolerance is None:
        wrong = _bits(ours) != _bits(theirs)
    else:
        wrong = ~((ours.double() - theirs.double()).abs() <= tolerance)
    count = int(wrong.sum())
    if not count:
        return None
    flat = int(wrong.flatten().nonzero()[0])
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), ours.shape)]
    our, their = ours.flatten()[flat].item(), theirs.flatten()[flat].item()
    largest = float((ours.double() - theirs.double()).abs().max())
    what = f"{name}{index} is {our!r}, expected {their!r}"
    return f"{what}; {count} of {ours.numel()} elements differ, by {largest:.3g} at most"


def _tensors(of: Tensors) -> Mapping[str, Tensor]:
    found = of.state_dict() if isinstance(of, nn.Module) else of
    return {name: tensor.detach() for name, tensor in found.items()}


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()]) if tensor.dtype != torch.bool else tensor


def _fail(text: str | None) -> None:
    if text:
        raise AssertionError(text)
