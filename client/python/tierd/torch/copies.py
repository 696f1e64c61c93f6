"""Modules of a model on tierd that are copied or pickled: a copy is a plain module, and nothing is pickled."""

from __future__ import annotations

import copy
import errno
import types
import weakref
from collections.abc import Iterable
from typing import Any, NoReturn

from torch import nn

from tierd._core import Error
from tierd.torch import compat
from tierd.torch.guards import Handle

# Attributes that a module on tierd has beside those of its class.
_OWN = (
    "__deepcopy__",
    "__reduce_ex__",
    "_apply",
    "load_state_dict",
    "state_dict",
    compat.REGISTRY,
    compat.PREPARE_SCRIPTABLE,
)
# Where it has hooks of ours.
_HOOKS = ("_forward_hooks", "_forward_hooks_always_called", "_forward_pre_hooks")


class _Single:
    """Has one module copied and pickled so, until it is removed."""

    def __init__(self, module: nn.Module, job: str, hooks: set[int]):
        self._module = weakref.ref(module)

        def deepcopy(self: nn.Module, memo: dict[int, Any]) -> nn.Module:
            own = {name: vars(self).pop(name) for name in _OWN if name in vars(self)}
            try:
                made = _plain_copy(self, memo)
            finally:
                vars(self).update(own)
            for name in _HOOKS:
                for number in hooks & vars(made)[name].keys():
                    del vars(made)[name][number]
            return made

        def reduce(self: nn.Module, protocol: int) -> NoReturn:
            raise Error(
                errno.ENOTSUP,
                "a model on tierd cannot be pickled, as torch.save(model) and processes that are spawned would: its values are "
                f'those of job "{job}". Save model.state_dict(), or call tierd.save(path); in another process make the model '
                f'anew, and give it the values by tierd.follow(model, job="{job}"). copy.deepcopy(model) is a plain model',
            )

        vars(module)["__deepcopy__"] = types.MethodType(deepcopy, module)
        vars(module)["__reduce_ex__"] = types.MethodType(reduce, module)

    def remove(self) -> None:
        if (module := self._module()) is not None:
            vars(module).pop("__deepcopy__", None)
            vars(module).pop("__reduce_ex__", None)


def _plain_copy(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """As copy.deepcopy() of a module without a method of its own. That would ask the module for it, and some, as those of
    peft, answer with what a module inside of them has."""
    kind: Any = type(module)
    if hasattr(kind, "__deepcopy__"):
        made: nn.Module = kind.__deepcopy__(module, memo)
    else:
        made = copy._reconstruct(module, memo, *kind.__reduce_ex__(module, 4))  # type: ignore[attr-defined]
    return made


def keep_single(modules: Iterable[nn.Module], job: str, hooks: set[int]) -> list[Handle]:
    """Has deep copies of the modules made without these hooks, and pickling raise an error, until the handles are removed.

    hooks: the numbers of their handles.
    """
    return [_Single(module, job, hooks) for module in modules]
