"""Units in the trainer: parameters whose data is the daemon's memory while somebody needs it.

A parameter object stays the same for ever. While its unit is *shown* its data is a view of the gathered memory; while
it is *hidden* its data is one NaN, expanded to the shape, and its class is a subclass that shows the unit around each
function of torch that uses the parameter. The lease is not ours: each view's storage has a share of it, so whatever a
model keeps stays valid, and the worst is memory that is held longer, and a step that is refused.
"""

from __future__ import annotations

import errno
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary

from tierd._core import Error
from tierd.torch import compat
from tierd.torch.meta import replace

if TYPE_CHECKING:
    from tierd.torch.device import Host
    from tierd.torch.membership import Membership
    from tierd.torch.units import Plan


Tensor = TypeVar("Tensor", bound=torch.Tensor)


class Saved(NamedTuple):
    """What is kept of another tensor saved for backward. Torch looks at no versions of what goes through hooks."""

    tensor: torch.Tensor
    version: int


class Packed(NamedTuple):
    """What is kept of a tensor saved for backward whose memory is a unit's: where it lies there, and of which step it
    is."""

    unit: Unit
    tensor: int
    version: int
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


# Units' memory, by the addresses of storages: the unit, which of its tensors, of which version.
Addresses = dict[int, tuple["Unit", int, int]]


class Copying(threading.local):
    """Whether a thread makes a state_dict of a job: what is detached for that is copied."""

    copy: Callable[[Unit, int], torch.Tensor] | None = None


class Unit:
    """Parameters that are gathered and released together.

    Used by somebody, they are of the daemon's memory and of their own class; only held, of its memory and of the class that
    gathers; else of one NaN and of that class.
    """

    def __init__(
        self,
        membership: Membership,
        memory: Host,
        index: int,
        plan: Plan,
        addresses: Addresses,
    ):
        self.membership = membership
        self.memory = memory
        self.index = index
        self.name = plan.name
        self.is_trained = plan.is_trained
        self.names = [entry.names[0] for entry in plan.entries]
        self.parameters = [entry.parameter for entry in plan.entries]
        self.version = 0
        self.saving: Callable[[], AbstractContextManager[None]] = nullcontext  # has tensors saved as places
        self.copying = Copying()
        self._addresses = addresses
        self._uses = 0  # by forwards and functions
        self._holds = 0  # by backwards
        self.pushes = 0  # of gradients, since the last step
        self.taking: list[RemovableHandle] = []  # the hooks that take gradients
        self.set_by_caller: set[int] = set()  # parameters whose grad was set by no backward
        self.incoming: dict[int, torch.Tensor] | None = None  # while values are loaded: what was copied to parameters
        self._lock = threading.RLock()
        self._classes = [type(parameter) for parameter in self.parameters]
        self._hidden_classes = [_hidden_class(kind) for kind in self._classes]
        self._dtypes = [parameter.dtype for parameter in self.parameters]
        self._shapes = [parameter.shape for parameter in self.parameters]
        self.nothing = [_nothing(parameter, memory.device) for parameter in self.parameters]
        self._is_raw = [dtype not in _FORMATS for dtype in self._dtypes]

    def enter(self) -> None:
        """Shows the unit until a `leave()` for each `enter()`."""
        with self._lock:
            self._be_here()
            if self._uses == 0:
                self._set_classes(self._classes)
            self._uses += 1

    @contextmanager
    def shown(self) -> Iterator[None]:
        """The unit shown, and tensors saved as places."""
        self.enter()
        try:
            with self.saving():
                yield
        finally:
            self.leave()

    def leave(self) -> None:
        with self._lock:
            self._uses -= 1
            if self._uses == 0:
                self._set_classes(self._hidden_classes)
                if self._holds == 0:
                    self._let_go()

    def hold(self) -> None:
        """Has the memory there until a `drop()` for each `hold()`, for a backward that may run a forward of its own.

        The class stays the one that gathers: no hooks for saved tensors can be set up for such a forward, but by that.
        """
        with self._lock:
            self._be_here()
            self._holds += 1

    def drop(self) -> None:
        with self._lock:
            self._holds -= 1
            if not self.is_here:
                self._let_go()

    @property
    def is_here(self) -> bool:
        """Whether its parameters have their values."""
        return self._uses > 0 or self._holds > 0

    def hide(self) -> None:
        """Takes a new unit's own memory out of its parameters, if they have any."""
        for tensor, (parameter, nothing) in enumerate(zip(self.parameters, self.nothing, strict=True)):
            if parameter.is_meta:
                replace(parameter, nothing)
            gradient, parameter.grad = parameter.grad, None
            parameter.data = nothing
            if gradient is not None:
                parameter.grad = gradient.to(nothing.device)
            _registry[parameter] = (weakref.ref(self), tensor)
        self._set_classes(self._hidden_classes)

    def lend(self, tensor: int, value: torch.Tensor, gradient: torch.Tensor) -> None:
        """Makes a hidden parameter one of its own class with that value and gradient, both fp32, until `take_back()`."""
        parameter = self.parameters[tensor]
        parameter.__class__ = self._classes[tensor]
        parameter.data, parameter.grad = value, gradient

    def take_back(self, tensor: int) -> torch.Tensor:
        """Hides a parameter that was lent. What its value was last, fp32 and contiguous."""
        parameter = self.parameters[tensor]
        value = parameter.detach().to(torch.float32).contiguous()
        parameter.data, parameter.grad = self.nothing[tensor], None
        parameter.__class__ = self._hidden_classes[tensor]
        return value

    def _be_here(self) -> None:
        if not (self.is_here and self.memory.join(self)):
            self._gather()

    def _gather(self) -> None:
        if compat.is_tracing():
            raise Error(
                errno.ENOTSUP,
                f"{self.name} is gathered within torch.jit.trace, which would keep values that go again: trace a copy of the "
                "model (copy.deepcopy), or use torch.compile",
            )
        version, tensors = self.memory.gather(self)
        if version < self.membership.awaited and self.is_trained:
            del tensors  # the error would keep them, and with them a lease
            self.memory.let_go(self)
            self.membership.tell_failure()
            return self._gather()
        with compat.without_torch_function():
            for parameter, view in zip(self.parameters, tensors, strict=True):
                parameter.data = view
        self.version = version

    def _let_go(self) -> None:
        """The lease ends when nobody else has a view either."""
        with compat.without_torch_function():
            for parameter, nothing in zip(self.parameters, self.nothing, strict=True):
                parameter.data = nothing
        self.memory.let_go(self)

    def _set_classes(self, classes: list[type]) -> None:
        for parameter, kind in zip(self.parameters, classes, strict=True):
            parameter.__class__ = kind

    def view(self, memory: torch.Tensor, tensor: int) -> torch.Tensor:
        """The daemon's memory of a parameter as one of its type and shape."""
        if self._is_raw[tensor]:
            return memory.view(self._dtypes[tensor]).view(self._shapes[tensor])
        return memory

    def has(self, tensor: int, values: Any) -> bool:
        """Whether these values are the daemon's of a tensor, so that to write them would change nothing."""
        if not isinstance(values, torch.Tensor) or isinstance(values, _Hidden):
            return False
        return self._addresses.get(values.untyped_storage().data_ptr(), ())[:2] == (self, tensor)

    def count_trained(self) -> int:
        """How many of its parameters require gradients now."""
        with compat.without_torch_function():
            return sum(parameter.requires_grad for parameter in self.parameters)

    def leases(self) -> int:
        """How many this rank has on the unit, ours and those of views that others keep."""
        return self.membership.core.leases(self.index)

    def name_of(self, tensor: int) -> str:
        return self.names[tensor]

    def as_kept(self, tensor: int, value: torch.Tensor) -> torch.Tensor:
        """A value as the daemon takes it for this parameter: its dtype and shape, as by `copy_()`; bytes if they are raw."""
        value = value.detach()
        if value.dtype != self._dtypes[tensor] or value.shape != self._shapes[tensor]:
            value = torch.empty(self._shapes[tensor], dtype=self._dtypes[tensor]).copy_(value)
        value = value.cpu().contiguous()
        return value.view(-1).view(torch.uint8) if self._is_raw[tensor] else value

    # ---- Tensors saved for backward

    def unpack(self, packed: Packed) -> torch.Tensor:
        """The tensor again. RuntimeError: a step has changed the unit since it was saved."""
        with self._lock:
            if self.is_here:
                self._be_here()
                with compat.without_torch_function():
                    version, memory = self.version, self.parameters[packed.tensor].detach()
            else:
                version, memory = self.memory.tensor(self, packed.tensor)
        # Versions of what is frozen rise, too, but its values stay.
        if version != packed.version and self.is_trained and not self.membership.is_void:
            raise RuntimeError(
                f"{self.names[packed.tensor]} has been modified by optimizer.step() since this graph was made: it is of "
                f"step {version}, the graph of step {packed.version}. Call backward() before step(), or run forward again."
            )
        if memory.dtype != packed.dtype:
            memory = memory.view(packed.dtype)
        if memory.shape == packed.shape and memory.stride() == packed.stride:
            return memory
        return memory.as_strided(packed.shape, packed.stride, packed.offset)

    def pack(self, tensor: int) -> Packed:
        """A place for one of the unit's parameters, whole."""
        self.enter()
        try:
            parameter = self.parameters[tensor]
            return Packed(self, tensor, self.version, parameter.dtype, parameter.shape, parameter.stride(), 0)
        finally:
            self.leave()


def pack_with(addresses: Addresses) -> Callable[[torch.Tensor], Packed | Saved]:
    """A hook for tensors saved for backward that keeps places instead of a unit's memory."""

    def pack(tensor: torch.Tensor) -> Packed | Saved:
        if isinstance(tensor, _Hidden) and (own := place_of(tensor)) is not None:
            # A function of the user's own has it, without __torch_function__ before it.
            return own[0].pack(own[1])
        try:
            place = addresses.get(tensor.untyped_storage().data_ptr())
        except (NotImplementedError, RuntimeError):
            # Tensors without a storage, as sparse or functional ones, are none of ours.
            place = None
        if place is not None:
            unit, index, version = place
            offset = int(tensor.storage_offset())
            return Packed(unit, index, version, tensor.dtype, tensor.shape, tensor.stride(), offset)
        # A result that its own graph keeps would be a cycle that no collector sees.
        return Saved(tensor if tensor.grad_fn is None else tensor.detach(), tensor._version)

    return pack


def unpack(saved: Packed | Saved) -> torch.Tensor:
    """The other half of what `pack_with()` gives."""
    if isinstance(saved, Packed):
        return saved.unit.unpack(saved)
    if saved.tensor._version != saved.version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"a tensor of shape {list(saved.tensor.shape)} is at version {saved.tensor._version}; expected version "
            f"{saved.version} instead"
        )
    return saved.tensor


# ---- Hidden parameters

_FORMATS = {torch.float32, torch.bfloat16, torch.float16}

# Which unit a parameter is in, and where: weak at both ends, since a unit has its parameters.
_registry: WeakIdKeyDictionary = WeakIdKeyDictionary()


def place_of(parameter: torch.Tensor) -> tuple[Unit, int] | None:
    """The unit of a parameter, and its index there; None: it is in none."""
    reference, tensor = _registry.get(parameter, (None, 0))
    unit = reference() if reference is not None else None
    return None if unit is None else (unit, tensor)


def is_hidden(parameter: torch.Tensor) -> bool:
    """Whether its values are a job's, open or closed."""
    return isinstance(parameter, _Hidden)


def _nothing(parameter: nn.Parameter, device: torch.device) -> torch.Tensor:
    """As large as the parameter, of one element; wrong in each computation, should it ever get into one."""
    value = float("nan") if parameter.is_floating_point() else 0
    # Not made of its type at once, which torch 2.4 cannot of 8-bit floats.
    return torch.tensor(value).to(parameter.dtype).to(device).expand(parameter.shape)


# Attributes and methods of a parameter's metadata, shown or hidden. No version of torch has all of these.
_ATTRIBUTES = (
    "shape dtype device layout ndim grad requires_grad is_leaf grad_fn names is_cuda is_meta is_sparse is_quantized "
    "output_nr _version itemsize nbytes _grad _grad_fn _backward_hooks"
)
_METHODS = (
    "size dim ndimension numel nelement element_size is_floating_point is_complex is_signed type get_device is_pinned "
    "requires_grad_ register_hook register_post_accumulate_grad_hook _is_view __hash__ __len__"
)
_METADATA = (
    {getattr(torch.Tensor, name).__get__ for name in _ATTRIBUTES.split() if hasattr(torch.Tensor, name)}
    | {getattr(torch.Tensor, name) for name in _METHODS.split() if hasattr(torch.Tensor, name)}
    | {getattr(torch.Tensor, name).__set__ for name in ("grad", "requires_grad", "_backward_hooks")}
    | {vars(torch._C.TensorBase)["grad"].__delete__}
)

_GRADIENT = vars(torch._C.TensorBase)["grad"]
_GET_GRADIENT, _SET_GRADIENT, _DELETE_GRADIENT = _GRADIENT.__get__, _GRADIENT.__set__, _GRADIENT.__delete__
_OF_GRADIENTS = {_GET_GRADIENT, _SET_GRADIENT, _DELETE_GRADIENT, torch.Tensor.register_post_accumulate_grad_hook}


@functools.cache
def _hidden_class(kind: type) -> type:
    """The class of parameters of this kind while they are hidden."""
    return type(f"Hidden{kind.__name__}", (_Hidden, kind), {"__module__": __name__})


class _Hidden(nn.Parameter):
    """What is common to hidden parameters: they show their units around what is done with them."""

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _METADATA:
            with compat.without_torch_function():
                place = place_of(args[0]) if function in _OF_GRADIENTS and args[0].requires_grad else None
                if place is None:
                    return function(*args, **kwargs)
                return _with_gradient(function, args, kwargs, *place)
        if function == torch.Tensor.copy_ and (place := place_of(args[0])) and place[0].incoming is not None:
            place[0].incoming[place[1]] = args[1]
            return args[0]
        if function == torch.Tensor.detach and (place := place_of(args[0])) and (copy := place[0].copying.copy):
            return copy(*place)
        _refuse_writing(function, args, kwargs)
        if function == torch.Tensor.detach and compat.is_making_parameter() and (place := place_of(args[0])):
            raise is_replaced(place[0].name_of(place[1]))
        with ExitStack() as stack:
            for parameter in _all_in((args, kwargs), _Hidden):
                if (place := place_of(parameter)) is not None:
                    stack.enter_context(place[0].shown())
            return function(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Parameter:
        """A parameter of the class that it has while it is shown, as that class makes it."""
        with ExitStack() as stack:
            if (place := place_of(self)) is not None:
                stack.enter_context(place[0].shown())
            copy: nn.Parameter = type(self).__deepcopy__(self, memo)
        return copy


def _with_gradient(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], unit: Unit, tensor: int
) -> Any:
    """What is done to the grad of a parameter of this place, or with hooks that see it."""
    is_pushed = unit.pushes > 0 or unit.membership.is_void
    if function == _GET_GRADIENT:
        found = function(*args, **kwargs)
        return PushedGradient.of(unit, tensor) if found is None and is_pushed else found
    if function in (_SET_GRADIENT, _DELETE_GRADIENT):
        # In a hook it is that of this backward pass, which is not pushed yet.
        if compat.graph_task() == -1 and unit.is_trained:
            _change_gradient(args[1] if len(args) > 1 else None, unit, tensor)
            if unit.membership.is_void:
                return None
        return function(*args, **kwargs)
    handle = function(*args, **kwargs)
    if unit.taking:
        # Ours comes last: nothing is left after it.
        taking = unit.taking[tensor]
        hooks = taking.hooks_dict_ref()
        if hooks is not None and taking.id in hooks:
            hooks[taking.id] = hooks.pop(taking.id)
    return handle


def _change_gradient(value: Any, unit: Unit, tensor: int) -> None:
    """A gradient is set between two backward passes. tierd.Error: the daemon has one already."""
    if value is None:
        if unit.pushes:
            unit.membership.given_up(unit.parameters[tensor])
    elif (unit.pushes or isinstance(value, PushedGradient)) and not unit.membership.is_void:
        raise Error(
            errno.ENOTSUP,
            f"the gradient of {unit.name_of(tensor)} is in the daemon already, and cannot be set: change it in a hook "
            "(register_post_accumulate_grad_hook), or set it instead of a backward()",
        )
    else:
        unit.set_by_caller.add(tensor)


class PushedGradient(torch.Tensor):
    """What the grad of a parameter is after backward, when the daemon has it: it says so to whoever wants its values."""

    parameter: nn.Parameter
    tierd_name: str
    membership: Membership

    @staticmethod
    def of(unit: Unit, tensor: int) -> PushedGradient:
        gradient: PushedGradient = torch.Tensor._make_subclass(PushedGradient, unit.nothing[tensor])
        gradient.parameter = unit.parameters[tensor]
        gradient.tierd_name = unit.name_of(tensor)
        gradient.membership = unit.membership
        return gradient

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"<the gradient of {self.tierd_name}, which is in the daemon until optimizer.step()>"

    @staticmethod
    def _unscale(gradients: list[torch.Tensor], found: torch.Tensor, factor: torch.Tensor) -> bool:
        """A GradScaler's: the daemon does so in the coming step. False: some of them are not the daemon's."""
        if not all(isinstance(gradient, PushedGradient) for gradient in gradients):
            return False
        for membership in {id(item.membership): item.membership for item in gradients}.values():  # type: ignore[attr-defined]
            membership.overflow_wanted(found, factor)
        return True

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function in _METADATA:
            with compat.without_torch_function():
                return function(*args, **(kwargs or {}))
        if function is compat.unscale and cls._unscale(*args):
            return None
        gradients = _all_in((args, kwargs or {}), PushedGradient)
        if function in (torch.Tensor.zero_, torch._foreach_zero_):
            for gradient in gradients:
                gradient.membership.given_up(gradient.parameter)
            return None
        raise Error(
            errno.ENOTSUP,
            f"the gradient of {gradients[0].tierd_name if gradients else 'a parameter'} is in the daemon already, where it is "
            "summed: clip with tierd.clip_grad_norm_(model.parameters(), …) or max_grad_norm, and look at gradients in "
            "hooks (parameter.register_post_accumulate_grad_hook)",
        )


def _all_in(value: Any, kind: type[Tensor]) -> list[Tensor]:
    """The tensors of a class among the arguments of a function."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, tuple | list):
        return [found for item in value for found in _all_in(item, kind)]
    if isinstance(value, dict):
        return [found for item in value.values() for found in _all_in(item, kind)]
    return []


def is_replaced(name: str) -> Error:
    """What is raised where another parameter is made of one."""
    return Error(
        errno.ENOTSUP,
        f"another parameter is made of {name} after tierd.initialize(), as weight_norm and other parametrizations do, and the "
        f"job trains {name}: do that before initialize(), or give nn.Parameter() a copy (detach().clone())",
    )


_WRITING = {"__set__", "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"}


def _refuse_writing(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises where the function would write to a parameter, whose memory is the daemon's, for all ranks."""
    name = getattr(function, "__name__", "")
    written = kwargs.get("out")
    if (name.endswith("_") and not name.endswith("__")) or name in _WRITING:
        # It writes to its first argument, which torch.nn.init gives by name; that may be a list of tensors.
        written = next(iter((*args, *kwargs.values())), None)
    for parameter in _all_in(written, _Hidden):
        place = place_of(parameter)
        if place is not None and not (name == "__set__" and place[0].has(place[1], args[1])):
            raise RuntimeError(
                f"{place[0].name_of(place[1])} is in the daemon's memory and cannot be written in place ({name}): give it "
                "to the whole model's load_state_dict(…, strict=False), on all ranks, or write it before tierd.initialize()"
            )
