"""The model's state_dict(), whose values are copies: views of the daemon's memory would hold the next step up; and
load_state_dict(), which gives the job other values between two steps."""

from __future__ import annotations

import errno
import threading
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tierd._core import Error
from tierd.torch import compat
from tierd.torch.compat import to_dlpack
from tierd.torch.storage import Unit, place_of

if TYPE_CHECKING:
    from tierd.torch.job import TorchJob

# ---- Copies


class _Copies(threading.local):
    """Of the state_dict that this thread makes: names that share a parameter share its copy, as they do in torch."""

    def __init__(self) -> None:
        self.of: weakref.ref[Any] = weakref.ref(set())
        self.found: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()

    def copy(self, state: Any, parameter: nn.Parameter, value: torch.Tensor) -> torch.Tensor:
        if self.of() is not state:
            self.found.clear()
            # Torch makes ordered dicts. A plain one of the caller's cannot be known again: it has copies for each name.
            with suppress(TypeError):
                self.of = weakref.ref(state)
        copy = self.found.get(id(parameter))
        if copy is None:
            copy = self.found[id(parameter)] = value.clone()
        return copy


def copy_state_dicts(modules: Iterable[nn.Module]) -> list[torch.utils.hooks.RemovableHandle]:
    """Has the modules' own parameters copied when a state_dict is made, each module by itself: no lease is left."""
    copies = _Copies()

    def copy(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
        for name, parameter in module._parameters.items():
            value = state.get(prefix + name)
            if (
                parameter is not None
                and value is not None
                and value is not parameter
                and place_of(parameter) is not None
            ):
                state[prefix + name] = copies.copy(state, parameter, value)

    return [compat.add_state_dict_hook(module, copy) for module in modules]


# ---- Loading


def install_loading(job: TorchJob) -> None:
    """Has the model's own load_state_dict() write to the job."""
    owner = weakref.ref(job)

    def load_state_dict(
        self: nn.Module, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """As of the module; all ranks call it between two steps, and what rank 0 gives counts. See docs/pytorch.md."""
        there = owner()
        if there is None or there.model is not self:  # a copy of the model, on no job
            return type(self).load_state_dict(self, state_dict, strict=strict, assign=assign)
        return _load(there, state_dict, strict, assign)

    job.model.load_state_dict = types.MethodType(load_state_dict, job.model)  # type: ignore[method-assign]


def uninstall_loading(model: nn.Module) -> None:
    """Undoes it."""
    model.__dict__.pop("load_state_dict", None)


def _load(job: TorchJob, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> Any:
    """What torch's own gives. tierd.Error: the job is as it was, on all ranks, and so are the model's buffers."""
    if assign or torch.__future__.get_swap_module_params_on_conversion():
        raise Error(
            errno.ENOTSUP,
            "assign=True would take the model's parameters off tierd: leave it out, and values are copied",
        )
    with _buffers_kept(job):
        try:
            result, given = _collect(job, state_dict, strict)
        except Exception:
            # The others wait for this rank.
            with job.writing():
                raise
        if not job.membership.is_void:
            for key, blob in job.kept.buffers_blob().items():
                job.core.blob_set(key, blob)
        with job.writing() as is_writer:
            if is_writer:
                for unit, tensor, value in given:
                    _write(job, unit, tensor, value)
    return result


@contextmanager
def _buffers_kept(job: TorchJob) -> Iterator[None]:
    """Puts the buffers back as they were, if what is done fails."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in job.kept.buffers().values()]
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        job.kept.forget()
        raise


def _collect(
    job: TorchJob, state_dict: Mapping[str, Any], strict: bool
) -> tuple[Any, list[tuple[Unit, int, torch.Tensor]]]:
    """Torch looks for what belongs where, with all that modules have to say about it, and copies to buffers; what it copies
    to parameters is put aside."""
    for unit in job.units:
        unit.incoming = {}
    try:
        result = type(job.model).load_state_dict(job.model, state_dict, strict=strict)
        return result, [(unit, i, value) for unit in job.units for i, value in (unit.incoming or {}).items()]
    finally:
        for unit in job.units:
            unit.incoming = None


def _write(job: TorchJob, unit: Unit, tensor: int, value: torch.Tensor) -> None:
    kept = unit.as_kept(tensor, value)
    if kept.dtype in (torch.bfloat16, torch.float16):
        # Masters have more than these say: those of a parameter that stays as it is stay, too.
        now = torch.empty_like(kept)
        job.core.read(unit.index, tensor, "parameter", to_dlpack(now))
        if torch.equal(now, kept):
            return
    job.core.write(unit.index, tensor, to_dlpack(kept))
