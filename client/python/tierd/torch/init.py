"""`init()`: a context in which a model is made module by module, and is never whole in the process' memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from tierd.torch.meta import to_meta
from tierd.torch.ranks import from_environment
from tierd.torch.scratch import Scratch

_SET_DATA = vars(torch._C.TensorBase)["data"].__set__


@contextmanager
def init(*, scratch: str | None = None, values: bool = True) -> Iterator[None]:
    """A context in which models are made without the memory for them; `tierd.torch.initialize()` takes them from there.

    Each parameter of 1 MiB or more lies in a file that has no name, and is in memory while its module is made. The model
    is as without the context, to the bit, and so are the random numbers after it; its parameters can be used, tied and
    written as usual. It serves all that makes modules: classes, `AutoModelForCausalLM.from_config()` and
    `from_pretrained()` of transformers, `model.to(torch.bfloat16)` if it is called inside.

    Args:
        scratch: a folder on a disk, with room for the model; None: $TMPDIR, else /var/tmp. Whatever happens no file is left there.
        values: False: parameters are on meta and are not initialized, which takes no time; buffers are as usual. For a
            model that `tierd.torch.from_pretrained()` or a job that exists has values for. Random numbers that are drawn
            afterwards are not those of plain construction.

    On other ranks than 0 (by the launcher's environment) parameters are on meta when the context ends, as rank 0 has the
    values of a new job; the random numbers are the same.

    Raises:
        tierd.Error: no room in the folder (ENOSPC), or it cannot be written to (EACCES).
    """
    if not values:
        with _registering(lambda module, name, parameter: to_meta(parameter)):
            yield
        return
    files = Scratch(scratch)
    try:
        with _registering(lambda module, name, parameter: files.take(parameter)), _Building(files):
            yield
        large = files.finish()
    finally:
        files.close()
    if from_environment()[0] != 0:
        for parameter in large:
            to_meta(parameter)


@contextmanager
def _registering(hook: Callable[[nn.Module, str, nn.Parameter], None]) -> Iterator[None]:
    """Calls the hook for each parameter that a module gets."""
    handle = register_module_parameter_registration_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class _Building(TorchFunctionMode):
    """Sees which parameter is worked on, so that others can leave the memory."""

    def __init__(self, scratch: Scratch):
        super().__init__()
        self._scratch = scratch

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        is_written = _is_in_place(function)
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Tensor):
                self._scratch.touch(value, is_written=is_written)
                is_written = False
        result = function(*args, **kwargs)
        if function == _SET_DATA and isinstance(args[0], nn.Parameter):
            self._scratch.take(args[0])
        return result


def _is_in_place(function: Callable[..., Any]) -> bool:
    """Whether it writes to its first tensor, as normal_() does."""
    name = getattr(function, "__name__", "")
    return name.endswith("_") and not name.endswith("__")
