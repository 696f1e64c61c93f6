"""The model's state_dict(), whose values are copies: views of the daemon's memory would hold the next step up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from tierd.torch import compat
from tierd.torch.storage import place_of


def copy_state_dicts(modules: Iterable[nn.Module]) -> list[torch.utils.hooks.RemovableHandle]:
    """Has the modules' own parameters copied when a state_dict is made, each module by itself: no lease is left."""
    return [compat.add_state_dict_hook(module, _copy) for module in modules]


def _copy(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    for name, parameter in module._parameters.items():
        value = state.get(prefix + name)
        if parameter is not None and value is not None and value is not parameter and place_of(parameter) is not None:
            state[prefix + name] = value.clone()
