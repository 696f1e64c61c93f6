"""Parameters that are frozen when the job begins: which of them may be trained later, and what stops the others."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import nn

from tierd._core import Error
from tierd.torch.tensors import FORMATS

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


def thawable(model: nn.Module, may_thaw: bool | Iterable[str]) -> list[nn.Parameter]:
    """The parameters that the job is to have room for, as if they were trained now.

    may_thaw: True: all that are frozen and of a type that can be trained; else names of parameters, or of modules, of
    which it is all of that type. tierd.Error: a name that the model does not have; a parameter of another type.
    """
    if isinstance(may_thaw, bool):
        return [item for item in model.parameters() if may_thaw and not item.requires_grad and item.dtype in FORMATS]
    found: dict[int, nn.Parameter] = {}
    parameters = list(model.named_parameters(remove_duplicate=False))
    for name in [may_thaw] if isinstance(may_thaw, str) else may_thaw:
        named = [(full, item) for full, item in parameters if full == name or full.startswith(f"{name}.")]
        chosen = [item for _, item in named if item.dtype in FORMATS]
        if not chosen:
            what = (
                f"it is {named[0][1].dtype}"
                if named
                else "the model has no such parameter, and no such module with any"
            )
            raise Error(
                errno.EINVAL,
                f"may_thaw: {name!r} cannot be trained: {what}. It takes True, or names of float32, bfloat16 or float16 "
                "parameters, or of modules",
            )
        found |= {id(item): item for item in chosen}
    return list(found.values())


def on_gradient(parameter: nn.Parameter, hook: Callable[[torch.Tensor], None]) -> RemovableHandle:
    """Calls the hook when autograd has accumulated a gradient. Torch takes such hooks of what requires a gradient now,
    and keeps them while it does not."""
    required = parameter.requires_grad
    parameter.requires_grad_(True)
    try:
        handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(hook)
        return handle
    finally:
        parameter.requires_grad_(required)


def refuse(parameter: nn.Parameter, text: str) -> RemovableHandle:
    """Has a backward pass that makes a gradient of the parameter raise this."""

    def raises(item: torch.Tensor) -> None:
        item.grad = None
        raise Error(errno.EINVAL, text)

    return on_gradient(parameter, raises)


def is_frozen_for_good(name: str) -> str:
    """What `refuse()` says of a parameter that was frozen, and may not be thawed."""
    return (
        f"{name} was frozen at tierd.initialize(), so the job has no gradient and no moments of it, and would not train "
        f"it: say initialize(…, may_thaw=[{name!r}]), or may_thaw=True for all, when a job begins; or leave it frozen "
        "(requires_grad_(False))"
    )


def is_in_no_group(name: str) -> str:
    """What `refuse()` says of a parameter that may be thawed, while nobody has a learning rate for it."""
    return (
        f"{name} is thawed, but in no group of the optimizer, which would not train it: call "
        "optimizer.add_param_group({'params': […]}) before backward()"
    )
