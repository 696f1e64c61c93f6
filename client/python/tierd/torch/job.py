"""A model's membership of a job: its units, its hooks, its steps."""

from __future__ import annotations

import atexit
import errno
import functools
import os
import sys
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn

from tierd import _core
from tierd._core import Error, StaleError
from tierd.torch import compat
from tierd.torch.compat import to_dlpack
from tierd.torch.copies import keep_single
from tierd.torch.device import Host, memory_for
from tierd.torch.guards import Handle, guard
from tierd.torch.holders import naming_holders
from tierd.torch.hooks import Hooks
from tierd.torch.local import LocalOptimizers
from tierd.torch.membership import Membership, Standing, wait
from tierd.torch.opening import Opening
from tierd.torch.pages import rest
from tierd.torch.progress import bar
from tierd.torch.ranges import in_range
from tierd.torch.resume import Position
from tierd.torch.state_dicts import install_loading, install_saving, uninstall
from tierd.torch.step import Step
from tierd.torch.storage import Addresses, Copying, Unit, place_of
from tierd.torch.thawing import is_frozen_for_good, is_in_no_group, refuse
from tierd.torch.units import Plan

# In the order in which they were opened, until they are closed.
open_jobs: list[TorchJob] = []


class TorchJob:
    """What `initialize()` makes of a model. One object per job and process."""

    def __init__(
        self,
        model: nn.Module,
        opening: Opening,
        core: _core.Job,
        socket: str,
        max_grad_norm: float,
        device: torch.device = Host.device,
        gpu_tier: bool | None = None,
    ):
        self.name: str = opening.options["name"]
        self.rank: int = opening.options["rank"]
        owner = opening.options.get("owner", -1)
        self.owner: int = os.getuid() if owner < 0 else owner
        self.core = core
        self.model = model
        self.kept = opening.kept
        self.optimizers = opening.optimizers
        self.rule = opening.rule
        self.groups = opening.groups
        self.local = opening.local
        # SGD has them if any of its groups has momentum.
        self.has_moments = self.rule.kind != _core.NONE and any(
            group.get("momentum", True) for group in self.param_groups
        )
        self.membership = Membership(core)
        self.units: list[Unit] = []
        self.position = Position(self)
        self.addresses: Addresses = {}
        self.copying = Copying()
        self.memory = memory_for(device, self.membership, self.addresses, gpu_tier=gpu_tier)
        self.membership.unmapped, self.membership.mapped = self.memory.lose, self.memory.map
        self.membership.settle = self.memory.settle
        self._hooks = Hooks(self.membership, self.memory, model, self.addresses)
        self.membership.lost = self._lose
        self.membership.tell_failure = self.finish
        self.membership.overflow_wanted = lambda found, factor: self.coming.look_for_overflow(found, factor)
        self.membership.check_open = lambda: self.coming.check_open()
        self.membership.given_up = lambda parameter: self.give_up([parameter])
        self._handles: list[Handle] = []
        self._ungrouped: dict[int, Handle] = {}  # what stops gradients of parameters that no group has, by identity
        self._max_grad_norm = max_grad_norm
        self.coming = Step(self, max_grad_norm)
        self._scales_losses = opening.scales_losses
        self._loss_scale: float | None = None  # of the coming step; None: the daemon knows it
        self._last: tuple[Step, _core.Ticket] | None = None
        self._numbers: dict[int, int] | None = None  # of the job's groups, by parameters' identity; None: not known
        self.membership.is_early = opening.is_early
        self._await_announcement()
        self._gradient_scale = 1.0 / opening.options["world_size"]
        self.socket = socket
        self.seen = core.statistics(), time.monotonic()  # by the last summary
        open_jobs.append(self)
        self.process = os.getpid()
        self._at_exit = functools.partial(_close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's, which are others after its load_state_dict()."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    # ---- Units

    def define(self, opening: Opening) -> None:
        """Defines the units."""
        for plan in opening.units:
            index = self.core.define(plan.name, opening.tensors(plan))
            unit = Unit(self.membership, self.memory, index, plan, self.addresses)
            unit.saving, unit.copying = self._hooks.saving, self.copying
            self.units.append(unit)

    def write(self) -> None:
        """Gives the job the values that the parameters have."""
        with bar("writing values", sum(_bytes_of(unit.parameters) for unit in self.units)) as advance:
            for unit in self.units:
                for tensor, parameter in enumerate(unit.parameters):
                    values = unit.as_kept(tensor, parameter)
                    self.core.write(unit.index, tensor, to_dlpack(values))
                    rest(parameter)
                    advance(values.nbytes)

    def install(self, plans: list[Plan]) -> None:
        """Takes the values out of the model, which from now on sees them when it needs them."""
        by_module: dict[int, tuple[nn.Module, list[Unit]]] = {}
        for plan, unit in zip(plans, self.units, strict=True):
            unit.hide()
            self._refuse(unit)
            if plan.is_trained:
                self._hooks.train(unit)
            for module in plan.modules:
                by_module.setdefault(id(module), (module, []))[1].append(unit)
        for module, units in by_module.values():
            self._hooks.add(module, units)
        self._handles += [*guard(self.model), *keep_single(self.model.modules(), self.name, self._hooks.numbers())]
        install_loading(self)
        install_saving(self)

    def _refuse(self, unit: Unit) -> None:
        """Stops gradients that nothing would come of. What is in no group and required some before is as in torch."""
        for name, parameter in zip(unit.names, unit.parameters, strict=True):
            if unit.is_trained and not self.groups.has(parameter):
                self._ungrouped[id(parameter)] = refuse(parameter, is_in_no_group(name))
            elif not unit.is_trained and not parameter.requires_grad and parameter.is_floating_point():
                self._handles.append(refuse(parameter, is_frozen_for_good(name)))

    def add_group(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer has got one more group. tierd.Error: the job cannot train what it has."""
        if self.local is not None:
            raise Error(
                errno.ENOTSUP,
                f"add_param_group() after tierd.initialize(): {type(optimizer).__name__} runs in the trainer, with the groups "
                "that it had then: add it before, with parameters that are frozen where they are to be, and may_thaw=",
            )
        added = optimizer.param_groups[-1]["params"]
        self.groups.add(optimizer, added)
        for parameter in added:
            self._ungrouped.pop(id(parameter)).remove()

    # ---- What is frozen now

    def frozen(self) -> list[str]:
        """Names of the parameters that the job can train, and that do not require gradients now."""
        return [u.name_of(i) for u, i in self.trained() if not u.parameters[i].requires_grad]

    def freeze(self, names: Iterable[str]) -> None:
        """Has these not require gradients, and all others that the job can train."""
        frozen = set(names)
        for unit, tensor in self.trained():
            unit.parameters[tensor].requires_grad_(unit.name_of(tensor) not in frozen)

    # ---- Other values

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """All ranks enter it; what rank 0 writes meanwhile counts, for all at once, when all have left it.

        Gives whether this rank writes. An error in it, on any rank, leaves the job as it was, and all ranks get one. A
        void iteration writes nothing.
        """
        if not self.membership.is_void and self._hooks.begin_step():
            raise Error(
                errno.EBUSY,
                "values cannot be loaded between backward() and step(): call optimizer.step() or optimizer.zero_grad() first",
            )
        self.finish()
        if self.membership.is_void:
            yield False
            return
        try:
            self.memory.settle()
            with naming_holders(self.units, self.addresses):
                self.core.write_begin()
        except KeyboardInterrupt as error:
            error.add_note(
                "tierd: all ranks have to load values again before they go on: load_state_dict() has begun to"
            )
            raise
        try:
            yield self.rank == 0
        except BaseException:
            with suppress(Error):  # a rank was lost, and the writing with it
                self.core.write_cancel()
            raise
        self.core.write_end().wait()

    # ---- Steps

    def step(self, optimizer: torch.optim.Optimizer, loss_scale: float | None) -> None:
        """Closes the step, with what is kept with it, when each optimizer has come to it; it goes on while the trainer
        does. loss_scale: what a GradScaler has multiplied losses with; None: nothing, or it has been told already."""
        self._hooks.begin_step()
        self._hooks.take_own()
        step = self.coming
        if not self.membership.is_void:
            if not self._hooks.begin_step():
                raise Error(errno.EINVAL, "optimizer.step() without a gradient: call loss.backward() before it")
            step.check_whole()
        step.take(optimizer, loss_scale)
        if not step.has_all(self.optimizers):
            return
        groups = step.groups(self.optimizers)
        try:
            self.finish()
            self._close(step, groups)
        except BaseException:
            step.leave(optimizer)
            raise
        self._begin_next()
        if self.local is not None and self._last is not None:
            self._update(self.local, self._last[1], [group for those in groups for group in those])
        if step.is_scaled:
            step.tell_overflow(self.finish)

    def _close(self, step: Step, groups: list[list[dict[str, Any]]]) -> None:
        if self.membership.is_void:
            return
        self.position.keep()
        self._keep_first()
        told = self._rates(step), self.rule.groups(self.groups.in_step(groups)), self.groups.numbers_in_step(groups)
        if self._announced not in (None, told):
            raise Error(
                errno.EINVAL,
                "a group of the optimizer, the clipping or a GradScaler's scale is not what it was at the first gradient, as "
                "early_updates=True promises: change them before backward(), and give the scaler to resumable(); or leave "
                "early_updates out",
            )
        rates, groups_then, numbers = told
        self.membership.attempt(lambda: self._move(numbers))
        with naming_holders(self.units, self.addresses):
            ticket = in_range("step", "", lambda: self.membership.close_step(rates, groups_then, self.kept.blobs()))
        if ticket is not None:
            self._last = step, ticket
            self.membership.awaited = 1 + max(unit.version for unit in self.units if unit.pushes)

    def _rates(self, step: Step, loss_scale: float | None = None) -> dict[str, Any]:
        rates = step.rates(self._gradient_scale, loss_scale)
        if self._scales_losses:
            if self._loss_scale is None:
                raise Error(errno.EINVAL, "the job has a loss scale: tierd.torch.scale_loss(loss).backward()")
            rates["loss_scale"] = self._loss_scale
        return rates

    def _await_announcement(self) -> None:
        """Of a step that is to be updated early the daemon is told all before its first gradient."""
        self._announced: tuple[dict[str, Any], list[dict[str, Any]] | None, dict[int, int]] | None = None
        self.membership.announce = self._announce if self.membership.is_early else None

    def _announce(self) -> None:
        rates = self._rates(self.coming, self.position.loss_scale())
        now = [optimizer.param_groups for optimizer in self.optimizers]
        groups, numbers = self.rule.groups(self.groups.in_step(now)), self.groups.numbers_in_step(now)
        self._move(numbers)
        self.core.step_begin(rates, groups, 1)
        self._announced = rates, groups, numbers

    def _move(self, numbers: dict[int, int]) -> None:
        """Has the job's groups of the step that comes be these, by the identity of parameters."""
        if not numbers or numbers == self._numbers:
            return
        self.finish()
        for unit in (unit for unit in self.units if unit.is_trained):
            there = self.core.groups_get(unit.index)
            now = [numbers.get(id(item), number) for item, number in zip(unit.parameters, there, strict=True)]
            if tuple(now) != there:
                self.core.groups_set(unit.index, *now)
        self._numbers = numbers

    def regroup(self) -> None:
        """Puts parameters into the optimizers' groups that they were in at the job's step."""
        numbers: dict[int, int] = {}
        for unit in (unit for unit in self.units if unit.is_trained and self.local is None):
            there = self.membership.until_it_stands(functools.partial(self.core.groups_get, unit.index))
            numbers |= {id(item): number for item, number in zip(unit.parameters, there, strict=True)}
        self.groups.place(numbers)

    def _keep_first(self) -> None:
        if self.local is not None:
            self.membership.attempt(functools.partial(self.local.keep_first, self.core))

    def _update(self, local: LocalOptimizers, ticket: _core.Ticket, groups: list[dict[str, Any]]) -> None:
        """The optimizers that run here update this rank's part of a step that is closed."""

        def update() -> None:
            local.update(self.core, groups)
            local.keep(self.core)
            for key, blob in self.kept.blobs().items():
                self.membership.keep(key, blob)
            self.core.step_finish()

        try:
            is_skipped = self.membership.attempt(lambda: ticket.wait(_core.REDUCED) and ticket.result()["is_skipped"])
        except Error as error:
            if error.errno != errno.EDOM:
                raise
            # As of a step of the daemon's: finish() tells it.
            return
        if is_skipped is not False:
            return
        try:
            self.membership.attempt(update)
        except StaleError:
            raise
        except BaseException as error:
            # Nobody else has its part, and the others wait for it.
            error.add_note("tierd: the step came to nothing, and this rank has left: start the trainer again to go on")
            self._last = None
            self.detach()
            raise

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the scale of the coming step, which the last one may have moved."""
        if not self._scales_losses:
            raise Error(errno.EINVAL, "the job has no loss scale: say loss_scale=, and loss_scale_interval= to move it")
        self.finish()
        if self._loss_scale is None:
            self._loss_scale = float(self.core.state()["loss_scale"])
        return loss * self._loss_scale

    def finish(self) -> dict[str, Any] | None:
        """Waits for the last step; what it did, None if there is none. Raises what it failed with, once."""
        last, self._last = self._last, None
        self.membership.awaited = 0
        if last is None:
            return None
        step, ticket = last
        try:
            result = in_range("wait", "for the last step", lambda: self.membership.finish_step(ticket))
        except Error:
            # Nothing was kept with it.
            self.kept.forget()
            raise
        step.norm = None if result is None else result["gradient_norm"]
        return result

    def trained(self) -> Iterator[tuple[Unit, int]]:
        """The places of all parameters that are trained."""
        return self._hooks.trained()

    def trains_any(self, parameters: list[torch.Tensor]) -> bool:
        """Whether one of these parameters is the job's."""
        return any(place[0].membership is self.membership for item in parameters if (place := place_of(item)))

    def trains_only(self, parameters: list[torch.Tensor]) -> bool:
        """Whether these are all that the job trains, and no others that are trained; what is frozen now has no gradients."""
        trained = {
            id(unit.parameters[tensor]) for unit, tensor in self.trained() if unit.parameters[tensor].requires_grad
        }
        return trained == {id(item) for item in parameters if item.requires_grad}

    def pushed(self) -> Iterator[torch.Tensor]:
        """The parameters whose gradients are the daemon's since the last step."""
        for unit, tensor in self.trained():
            if unit.pushes and unit.parameters[tensor].requires_grad:
                yield unit.parameters[tensor]

    def give_up(self, parameters: Iterable[torch.Tensor]) -> None:
        """The gradients of these are set to None, or to zeros. When those of all are, on all ranks, they are thrown away."""
        if not self._hooks.begin_step() or self.membership.is_void:
            return
        if any(self.coming.give_up(parameter) for parameter in parameters):
            try:
                self.drop()
            except BaseException:
                self.coming.give_nothing_up()
                raise

    def drop(self) -> None:
        """Throws away what was pushed since the last step, if anything was; all ranks do so."""
        if not self._hooks.begin_step() or self.membership.is_void:
            return
        self.finish()
        if not self.membership.is_void:
            self._keep_first()
            with naming_holders(self.units, self.addresses):
                ticket = self.membership.close_step({"drop": True}, None, {})
            if self.local is not None and ticket is not None:
                # A rank that leaves before the daemon knows that there is nothing to finish costs the step.
                self.membership.finish_step(ticket)
        self._begin_next()

    def _begin_next(self) -> None:
        """What was pushed, and how it is clipped, was the last step's."""
        self._loss_scale = None
        self.coming.is_closed = True
        self.coming = Step(self, self._max_grad_norm)
        self._await_announcement()
        self._hooks.end_step()

    def repeat(self) -> None:
        """Begins an iteration that the job has been trained with: it counts for nothing, up to `go_on()`."""
        self.membership.standing = Standing.VOID

    def go_on(self) -> None:
        """Ends a void iteration: everything is as it was after the step at which the job stands."""
        if self.membership.is_void:
            self._hooks.end_step()
            self.memory.settle()
            self.membership.standing = Standing.RUNNING
            self.restore()

    def come_back(self) -> int:
        """The job was rolled back: this rank goes there, with everything. The step at which it stands."""
        step = self.membership.go_back()
        if not self.membership.is_in_loop:
            self._begin_next()
        self.position.come_back()
        return step

    def restore(self) -> None:
        """Takes what is kept beside the tensors as it was after the step at which the job stands."""
        self.kept.restore(self.core)
        if self.local is not None:
            self.local.restore(self.core, self.membership.step)

    # ---- Writes in place

    def name_at(self, address: int) -> str | None:
        """The parameter that was last seen at this address of gathered memory, if one was."""
        nearest = max((start for start in self.addresses if start <= address), default=0)
        unit, tensor, _ = self.addresses.get(nearest, (None, 0, 0))
        if unit is None or address >= nearest + unit.parameters[tensor].nbytes:
            return None
        return unit.name_of(tensor)

    def undo_writes(self) -> bool:
        """Has the model see the daemon's memory again where it was written to. False: it cannot."""
        with suppress(Error):
            return self.core.undo_writes()
        return False

    def spoil(self, text: str) -> None:
        """What this process sees of the job is not the job's any more: raises, and so does all that comes."""
        self.membership.spoil(text)
        raise RuntimeError(text)

    def _lose(self) -> None:
        """The step that is under way, or was handed in, is lost, with what was pushed for it."""
        self._last, self.membership.awaited = None, 0
        self._numbers = None
        self._await_announcement()
        self.memory.lose()
        self._hooks.forget()

    def close(self) -> None:
        """Ends the membership in good order; the model keeps its parameters, but not their values."""
        failed = None
        if self._last is not None:
            try:
                wait(self._last[1])
            except Error as error:
                # The end of the membership tells of a lost connection or a lost rank.
                failed = error if error.errno == errno.EDOM else None
        self._uninstall()
        self.core.close()
        if failed is not None:
            raise failed

    def detach(self) -> None:
        """Ends a membership that did not come about."""
        self._uninstall()
        self.core.detach()

    def _uninstall(self) -> None:
        atexit.unregister(self._at_exit)
        self._hooks.remove()
        for handle in (*self._handles, *self._ungrouped.values()):
            handle.remove()
        uninstall(self.model)
        self.memory.lose()
        self.core.discard_all()
        if self in open_jobs:
            open_jobs.remove(self)
        if not open_jobs:
            compat.restore_clipping()


def _close_at_exit(job: weakref.ref[TorchJob]) -> None:
    # In a process that was forked, and ends by itself, nothing is to be left.
    if (there := job()) is None or there.process != os.getpid():
        return
    try:
        there.close()
    except KeyboardInterrupt:
        if there in open_jobs:
            there.detach()
    except Error as error:
        if error.errno == errno.EBUSY:
            # A thread is in the middle of a step, and ends with the process.
            return
        # A traceback would be of no line of the script, and its loop gets no StaleError any more.
        said = (error.strerror or "").partition("; call tierd_")[0]
        print(f"tierd: {said}; started again, the script goes on with what tierd has kept", file=sys.stderr, flush=True)


def _bytes_of(parameters: list[nn.Parameter]) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)
