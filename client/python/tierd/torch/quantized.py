"""Frozen parameters that bitsandbytes has quantized: what it keeps beside them, in places that tierd cannot see.

A parameter's bytes are the daemon's, its scales (`SCB`, `quant_state`) stay in the trainer.
"""

from __future__ import annotations

import errno
import functools
from typing import Any

from torch import nn

from tierd._core import Error


def settle(model: nn.Module) -> None:
    """Has quantized modules find their bytes in their parameters alone. tierd.Error: one is not quantized yet, or packed.

    A layer of 8 bits computes with `state.CB`, which is its weight's memory: this becomes what the weight has by then.
    """
    for prefix, module in model.named_modules():
        weight = module._parameters.get("weight")
        if weight is None or weight.requires_grad:
            continue
        _check(f"{prefix}.weight" if prefix else "weight", weight)
        # Else the first evaluation would pack the weight anew, into memory of its own.
        if getattr(module, "support_avx512bf16_for_cpu", False):
            module.support_avx512bf16_for_cpu = False
        if getattr(weight, "CB", None) is not None and hasattr(module, "init_8bit_state"):
            module.init_8bit_state()
        state: Any = getattr(module, "state", None)
        if getattr(weight, "has_fp16_weights", True) is False and hasattr(state, "CB"):
            del state.CB
            state.tierd_weight = weight
            kind: type = type(state)
            state.__class__ = _state_class(kind)


@functools.cache
def _state_class(kind: type) -> type:
    values = property(lambda state: state.tierd_weight.data, lambda state, values: None)
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "CB": values})


def _check(name: str, weight: nn.Parameter) -> None:
    is_late = getattr(weight, "bnb_quantized", True) is False or (
        getattr(weight, "has_fp16_weights", True) is False and weight.is_floating_point()
    )
    if is_late:
        raise Error(errno.EINVAL, f'{name} is not quantized yet: call model.to("cpu") before tierd.initialize()')
    if getattr(getattr(weight, "quant_state", None), "packing_format_for_cpu", False):
        raise Error(
            errno.EINVAL, f"{name} is packed for inference: call tierd.initialize() before the first evaluation"
        )
