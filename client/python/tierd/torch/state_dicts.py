"""The model's state_dict(), whose values are copies: views of the daemon's memory would hold the next step up; and
load_state_dict(), which gives the job other values between two steps."""

from __future__ import annotations

import errno
import functools
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tierd._core import Error
from tierd.torch.compat import to_dlpack
from tierd.torch.pages import rest
from tierd.torch.storage import Unit

if TYPE_CHECKING:
    from tierd.torch.job import TorchJob

# ---- Saving


class _Copies:
    """Of the parameters that one state_dict has, a unit at a time: names that share a parameter share its copy, as they do
    in torch."""

    def __init__(self, module: nn.Module):
        self._wanted = {id(parameter) for parameter in module.parameters()}
        self._made: dict[int, torch.Tensor] = {}

    def of(self, unit: Unit, tensor: int) -> torch.Tensor:
        parameter = unit.parameters[tensor]
        if id(parameter) not in self._made:
            self._wanted.add(id(parameter))
            with unit.shown():
                for own in unit.parameters:
                    if id(own) in self._wanted:
                        self._made[id(own)] = own.detach().to("cpu", copy=True)
        return self._made[id(parameter)]

    def replace_views(self, state: Any, addresses: Mapping[int, tuple[Unit, int, int]]) -> None:
        """What was detached while its unit was shown, as in a forward, or by other means, is gathered memory still."""
        for name, value in state.items() if isinstance(state, dict) else ():
            if type(value) is torch.Tensor and value.layout == torch.strided:
                unit, tensor, _ = addresses.get(value.untyped_storage().data_ptr(), (None, 0, 0))
                if unit is not None:
                    is_whole = value.shape == unit.parameters[tensor].shape
                    state[name] = self.of(unit, tensor) if is_whole else value.to("cpu", copy=True)


def install_saving(job: TorchJob) -> None:
    """Has the state_dict() of the model and of its modules copy what is the job's."""
    owner = weakref.ref(job)

    def state_dict(self: nn.Module, *arguments: Any, **options: Any) -> Any:
        """As of the module; its values are copies, after the last step. See docs/pytorch.md."""
        make = functools.partial(type(self).state_dict, self, *arguments, **options)
        there = owner()
        # One that is made in another one's making is a part of it.
        return make() if there is None or there.copying.copy is not None else _save(there, self, make)

    for module in job.model.modules():
        vars(module)["state_dict"] = types.MethodType(state_dict, module)


def _save(job: TorchJob, module: nn.Module, make: Callable[[], Any]) -> Any:
    # The values of a step that has failed are those before it, and nobody may take them for the step's.
    job.finish()
    while True:
        losses, copies = job.membership.losses, _Copies(module)
        job.copying.copy = copies.of
        try:
            state = make()
        finally:
            job.copying.copy = None
        copies.replace_views(state, job.addresses)
        # Where the job has gone back meanwhile there would be values of two steps.
        if losses == job.membership.losses:
            return state


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


def uninstall(model: nn.Module) -> None:
    """Undoes both."""
    model.__dict__.pop("load_state_dict", None)
    for module in model.modules():
        vars(module).pop("state_dict", None)


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
            for key, blob in job.kept.blobs().items():
                job.membership.keep(key, blob)
        with job.writing() as is_writer:
            if is_writer:
                for unit, tensor, value in given:
                    _write(job, unit, tensor, value)
                    rest(value)
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
