"""Entry points from torch: a unit is shown around the forward of its modules and around its part of backward.

One object per job. Each hook finds its unit and calls one method; what must hold:

- a tensor saved for backward whose memory is a unit's is kept as its place (storage.Packed), so that the unit can go
  meanwhile;
- in backward a unit is shown from the first gradient of its outputs until its own gradients are pushed: recomputation
  by checkpoints that do not call the module finds it there;
- a gradient is taken when autograd has accumulated it; a unit is pushed when it has all of them, else at the end of
  backward;
- a backward pass is known by its graph task and not by its thread: for other devices than the processor autograd calls
  hooks in threads of its own, which never end.
"""

from __future__ import annotations

import errno
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tierd._core import Error
from tierd.torch import compat
from tierd.torch.device import Host
from tierd.torch.gradients import Gradients, taken_from
from tierd.torch.membership import Membership
from tierd.torch.storage import Addresses, Saved, Unit, pack_with, unpack
from tierd.torch.thawing import on_gradient


@dataclass
class _Pass:
    """A backward pass. One inside of another, as reentrant checkpoints make them, is a pass, too."""

    shown: list[Unit] = field(default_factory=list)  # for it, in the order in which it came to them
    over: threading.Event = field(default_factory=threading.Event)  # torch has let go of it

    @property
    def is_over(self) -> bool:
        """While we know of it it has failed then."""
        return self.over.is_set()


class _End:
    """Torch calls it when a pass has ended well, and lets go of it with the pass, however that has ended."""

    def __init__(self, of: _Pass, ends: Callable[[], None]):
        self._of, self._ends = of, ends

    def __call__(self) -> None:
        self._ends()

    def __del__(self) -> None:
        self._of.over.set()


class _Thread(threading.local):
    """The forwards that a thread is in the middle of."""

    def __init__(self) -> None:
        # For each entered module its units, and whether it has pushed hooks for saved tensors.
        self.entered: list[tuple[list[Unit], bool]] = []


class Hooks:
    """The hooks of one job in a model."""

    def __init__(self, membership: Membership, memory: Host, model: nn.Module, addresses: Addresses):
        self._membership = membership
        self._memory = memory
        self._pack = pack_with(addresses)
        self._pack.tierd_hooks = self  # type: ignore[attr-defined]
        self._thread = _Thread()
        self._passes: dict[int, _Pass] = {}  # by their graph tasks
        self._gradients: dict[Unit, Gradients] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._is_training: bool | None = None
        self.add(model, [])
        self._handles.append(
            model.register_forward_pre_hook(compat.not_compiled(self._beginning_of(model)), prepend=True)
        )

    # ---- Installing

    def add(self, module: nn.Module, units: list[Unit]) -> None:
        """Shows the units around the forward of the module, and not of its copies, which have the same hooks."""

        def before(called: nn.Module, arguments: Any) -> None:
            if called is module:
                self._enter(units)

        def after(called: nn.Module, arguments: Any, output: Any) -> None:
            # Also called where a hook before ours has raised, or ours itself.
            entered = self._thread.entered
            if called is module and entered and entered[-1][0] is units:
                self._leave(units, output)

        self._handles.append(module.register_forward_pre_hook(compat.not_compiled(before), prepend=True))
        self._handles.append(module.register_forward_hook(compat.not_compiled(after), always_call=True))

    def train(self, unit: Unit) -> None:
        """Takes the gradients of the unit."""
        gradients = self._gradients[unit] = Gradients(unit)
        unit.taking = [
            on_gradient(parameter, self._accumulated(gradients, tensor))
            for tensor, parameter in enumerate(unit.parameters)
        ]
        self._handles += unit.taking

    def numbers(self) -> set[int]:
        """Those of the handles of all hooks."""
        return {handle.id for handle in self._handles}

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # ---- Forward

    def _beginning_of(self, model: nn.Module) -> Callable[[nn.Module, Any], None]:
        def begins(called: nn.Module, arguments: Any) -> None:
            if called is model:
                self._leave_interrupted()
            if called is model and model.training is not self._is_training:
                self._is_training = model.training
                self._membership.phase("train" if model.training else "eval")

        return begins

    def _enter(self, units: list[Unit]) -> None:
        if self._passes and compat.graph_task() == -1:
            self._end_failed()
        for i, unit in enumerate(units):
            try:
                unit.enter()
            except BaseException:
                for entered in units[:i]:
                    entered.leave()
                raise
        self._thread.entered.append((units, self._save_places()))

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Has this thread's tensors saved as places."""
        has_pushed = self._save_places()
        try:
            yield
        finally:
            if has_pushed:
                compat.pop_saved_tensor_hooks()

    def _leave(self, units: list[Unit], output: Any) -> None:
        if self._thread.entered.pop()[1]:
            compat.pop_saved_tensor_hooks()
        if torch.is_grad_enabled():
            self._watch(units, output)
        for unit in units:
            unit.leave()

    def _leave_interrupted(self) -> None:
        """Ends forwards that were left by what is no Exception, as Ctrl-C: torch calls no hook then."""
        while self._thread.entered:
            units, has_pushed = self._thread.entered.pop()
            if has_pushed:
                compat.pop_saved_tensor_hooks()
            for unit in units:
                unit.leave()

    def _save_places(self) -> bool:
        """Has tensors saved through our hooks, before those that are there. False: they are already."""
        top = compat.top_saved_tensor_hooks()
        if top is None:
            compat.push_saved_tensor_hooks(self._pack, unpack)
            return True
        if getattr(top[0], "tierd_hooks", None) is self:
            return False
        pack, outer_unpack = self._composite(*top)
        compat.push_saved_tensor_hooks(pack, outer_unpack)
        return True

    def _composite(self, outer_pack: compat.Pack, outer_unpack: compat.Unpack) -> tuple[compat.Pack, compat.Unpack]:
        """Torch calls the innermost pair alone, so that calls the one around it for what is none of ours."""
        own_pack = self._pack
        is_counting = compat.is_of_checkpoint(outer_pack)

        def pack(tensor: torch.Tensor) -> Any:
            saved = own_pack(tensor)
            if isinstance(saved, Saved):
                return None, outer_pack(tensor)
            # Checkpoints count what is saved, in forward and again in the recomputation, and keep none of it.
            return (None, outer_pack(unpack(saved))) if is_counting else (saved, None)

        def unpack_either(saved: Any) -> torch.Tensor:
            place, other = saved
            return outer_unpack(other) if place is None else unpack(place)

        pack.tierd_hooks = self  # type: ignore[attr-defined]
        return pack, unpack_either

    # ---- Backward

    def _watch(self, units: list[Unit], output: Any) -> None:
        tensors = [tensor for tensor in _tensors_in(output) if tensor.requires_grad]
        if not tensors:
            return

        def begins(gradient: torch.Tensor) -> None:
            self._show(self._pass().shown, units)

        if len(tensors) == 1:
            tensors[0].register_hook(begins)
        else:
            torch.autograd.graph.register_multi_grad_hook(tensors, begins, mode="any")

    def _pass(self) -> _Pass:
        """The innermost one that this thread is in."""
        task = compat.graph_task()
        if task not in self._passes:
            self._end_failed()
            begun = _Pass()
            compat.at_end_of_backward(_End(begun, functools.partial(self._backward_ends, task)))
            self._passes[task] = begun
        return self._passes[task]

    def _show(self, shown: list[Unit], units: list[Unit]) -> None:
        before = list(shown)
        for unit in units:
            if unit not in before:
                unit.hold()
                shown.append(unit)
        # A unit that waits for no gradients was needed until the next units came.
        for unit in before if len(shown) > len(before) else ():
            if unit not in units and (unit not in self._gradients or self._gradients[unit].are_complete):
                self._hide(shown, unit)

    def _hide(self, shown: list[Unit], unit: Unit) -> None:
        with suppress(ValueError):
            shown.remove(unit)
            unit.drop()

    def _accumulated(self, gradients: Gradients, tensor: int) -> Callable[[torch.Tensor], None]:
        def take(parameter: torch.Tensor) -> None:
            gradient = taken_from(parameter)
            if gradient is None:
                return
            self._pass()
            with torch.no_grad():
                self._take(gradients, tensor, gradient)
            if gradients.are_complete:
                gradients.push()
                # Also where a pass around this one shows it.
                for each in list(self._passes.values()):
                    self._hide(each.shown, gradients.unit)

        return take

    def _take(self, gradients: Gradients, tensor: int, gradient: torch.Tensor) -> None:
        try:
            gradients.take(tensor, gradient)
        except Error as error:
            # Units whose gradients come slowly have all buffers: what they have so far goes as a part of its own.
            others = [other for other in self._gradients.values() if other.are_begun and other is not gradients]
            if error.errno != errno.ENOBUFS or not others:
                raise
            for other in others:
                other.push()
            gradients.take(tensor, gradient)

    def _backward_ends(self, task: int) -> None:
        if all(each.is_over for other, each in list(self._passes.items()) if other != task):
            try:
                self._push_begun()
            except BaseException:
                self._passes[task].over.set()
                raise
        self._end_pass(task)

    def _push_begun(self) -> None:
        for gradients in self._gradients.values():
            if gradients.are_begun:
                gradients.push()

    def _end_failed(self) -> None:
        """Torch does not say that a pass has failed: it lets go of it. What such passes have left goes."""
        failed = [task for task, each in list(self._passes.items()) if each.is_over]
        # Where others are under way the gradients may be theirs.
        if failed and len(failed) == len(self._passes):
            for gradients in self._gradients.values():
                gradients.discard()
            self._memory.push_all()
            # Also a buffer that a call had given when Ctrl-C was heard.
            self._membership.core.discard_all()
        for task in failed:
            self._end_pass(task)

    def _end_pass(self, task: int) -> None:
        for unit in self._passes.pop(task).shown:
            unit.drop()

    # ---- The step

    def trained(self) -> Iterator[tuple[Unit, int]]:
        """The parameters whose gradients are taken, by their places."""
        for unit in self._gradients:
            yield from ((unit, tensor) for tensor in range(len(unit.parameters)))

    def take_own(self) -> None:
        """Hands over gradients that the caller has set himself, as from torch.autograd.grad()."""
        for gradients in self._gradients.values():
            for tensor, gradient in gradients.take_own():
                with torch.no_grad():
                    self._take(gradients, tensor, gradient)
            if gradients.are_begun:
                gradients.push()

    def begin_step(self) -> bool:
        """Gives up what a forward or backward that has failed has left. Whether anything was pushed since the last step."""
        if compat.graph_task() != -1:
            raise Error(
                errno.EBUSY,
                "step() or zero_grad() is called within backward(), as by a hook of a parameter: a step of tierd is one of all "
                "parameters, so call it when backward() has ended",
            )
        self._leave_interrupted()
        if not self._memory.is_backward_here:
            # The thread that a pass has failed in lets go of it a moment after backward() has raised.
            for each in list(self._passes.values()):
                each.over.wait()
        self._end_failed()
        return any(unit.pushes for unit in self._gradients)

    def end_step(self) -> None:
        """What was pushed is the step's."""
        for unit in self._gradients:
            unit.pushes = 0

    def forget(self) -> None:
        for gradients in self._gradients.values():
            gradients.forget()


def _tensors_in(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    elif hasattr(output, "__dataclass_fields__"):
        output = list(vars(output).values())
    if isinstance(output, tuple | list):
        return [tensor for item in output for tensor in _tensors_in(item)]
    return []
