"""A parameter as a tensor of a job."""

from __future__ import annotations

import errno
from typing import Any

import torch
from torch import nn

from tierd import _core
from tierd._core import Error
from tierd.torch.safetensors import NAMES

FORMATS = {torch.float32: _core.FP32, torch.bfloat16: _core.BF16, torch.float16: _core.FP16}

# Frozen parameters of these types are kept as bytes.
_RAW = NAMES.keys() - FORMATS.keys() - {torch.float64, torch.complex64}


def define_tensor(
    names: list[str], parameter: nn.Parameter, group: int | None = None, *, has_wide_gradients: bool = False
) -> dict[str, Any]:
    """A parameter's definition. group: None: it is frozen. tierd.Error: a type that is not supported."""
    tensor: dict[str, Any] = {"name": names[0], "is_frozen": group is None}
    if len(names) > 1:
        tensor["alias"] = names[1]
    if has_wide_gradients:
        tensor["gradient_format"] = _core.FP32
    if parameter.dtype in FORMATS:
        tensor |= {"format": FORMATS[parameter.dtype], "shape": tuple(parameter.shape)}
    elif parameter.dtype in _RAW and tensor["is_frozen"]:
        shape = ",".join(str(size) for size in parameter.shape)
        tensor |= {
            "format": _core.BYTES,
            "shape": (parameter.numel() * parameter.element_size(),),
            "dtype": f"{NAMES[parameter.dtype]}[{shape}]",
        }
    else:
        raise Error(
            errno.EINVAL,
            f"{names[0]} is {parameter.dtype}: convert it first; trained parameters are float32, bfloat16 or float16",
        )
    if group is not None:
        tensor["group"] = group
    return tensor
