"""Parameters on meta, which have no values yet: they get memory later, and stay the same objects."""

from __future__ import annotations

import torch
from torch import nn


def to_meta(parameter: nn.Parameter) -> None:
    """Takes the values away; the object stays."""
    if not parameter.is_meta and not nn.parameter.is_lazy(parameter):
        replace(parameter, torch.empty_like(parameter, device="meta"))


def replace(parameter: nn.Parameter, values: torch.Tensor) -> None:
    """Gives the parameter other memory, also on another device; the object stays, with its class and attributes."""
    other = nn.Parameter(values, requires_grad=parameter.requires_grad)
    other.__class__ = type(parameter)
    other.__dict__.update(parameter.__dict__)
    torch.utils.swap_tensors(parameter, other)
