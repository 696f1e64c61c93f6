"""Units in the trainer: parameters whose data is the daemon's memory while somebody needs it.

A parameter object stays the same for ever. While its unit is *shown* its data is a view of the gathered memory; while
it is *hidden* its data is one NaN, expanded to the shape, and its class is a subclass that shows the unit around each
function of torch that uses the parameter. The lease is not ours: each view's storage has a share of it, so whatever a
model keeps stays valid, and the worst is memory that is held longer, and a step that is refused.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.utils.dlpack import from_dlpack
from torch.utils.weak import WeakIdKeyDictionary

from tierd.torch import compat

if TYPE_CHECKING:
    from tierd.torch.membership import Membership
    from tierd.torch.units import Entry


class Visibility(enum.Enum):
    """Whether a unit's parameters can be read."""

    HIDDEN = enum.auto()
    SHOWN = enum.auto()


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


class Unit:
    """Parameters that are gathered and released together."""

    def __init__(
        self,
        membership: Membership,
        index: int,
        name: str,
        entries: list[Entry],
        addresses: dict[int, tuple[Unit, int, int]],
    ):
        self.membership = membership
        self.index = index
        self.name = name
        self.names = [entry.names[0] for entry in entries]
        self.parameters = [entry.parameter for entry in entries]
        self.visibility = Visibility.SHOWN
        self.version = 0
        self._addresses = addresses
        self._uses = 0
        self._lock = threading.RLock()
        self._classes = [type(parameter) for parameter in self.parameters]
        self._hidden_classes = [_hidden_class(kind) for kind in self._classes]
        self._dtypes = [parameter.dtype for parameter in self.parameters]
        self._shapes = [parameter.shape for parameter in self.parameters]
        self._nothing = [_nothing(parameter) for parameter in self.parameters]
        self._is_raw = [dtype not in _FORMATS for dtype in self._dtypes]
        for tensor, parameter in enumerate(self.parameters):
            _registry[parameter] = (self, tensor)

    def enter(self) -> None:
        """Shows the unit until a `leave()` for each `enter()`."""
        with self._lock:
            if self._uses == 0:
                self._show()
            self._uses += 1

    def leave(self) -> None:
        with self._lock:
            self._uses -= 1
            if self._uses == 0:
                self.hide()

    @property
    def is_in_use(self) -> bool:
        return self._uses > 0

    def _show(self) -> None:
        version, capsules = self.membership.capsules(self.index)
        for tensor, capsule in enumerate(capsules):
            view = self._view(from_dlpack(capsule), tensor)
            parameter = self.parameters[tensor]
            parameter.__class__ = self._classes[tensor]
            parameter.data = view
            self._addresses[view.untyped_storage().data_ptr()] = (self, tensor, version)
        self.version = version
        self.visibility = Visibility.SHOWN

    def _view(self, memory: torch.Tensor, tensor: int) -> torch.Tensor:
        if self._is_raw[tensor]:
            return memory.view(self._dtypes[tensor]).view(self._shapes[tensor])
        return memory

    def hide(self) -> None:
        """Takes the memory out of the parameters. The lease ends when nobody else has a view either."""
        for parameter, nothing, kind in zip(self.parameters, self._nothing, self._hidden_classes, strict=True):
            parameter.data = nothing
            parameter.__class__ = kind
        self.visibility = Visibility.HIDDEN

    def restore(self) -> None:
        """Gives the parameters their classes and memory of their own again."""
        with self._lock:
            if self.visibility is Visibility.HIDDEN:
                self._show()
            for parameter in self.parameters:
                parameter.data = parameter.data.clone()
                _registry.pop(parameter, None)

    def name_of(self, tensor: int) -> str:
        return self.names[tensor]

    # ---- Tensors saved for backward

    def unpack(self, packed: Packed) -> torch.Tensor:
        """The tensor again. RuntimeError: a step has changed the unit since it was saved."""
        with self._lock:
            if self.visibility is Visibility.SHOWN:
                version, memory = self.version, self.parameters[packed.tensor].detach()
            else:
                version, capsule = self.membership.capsule(self.index, packed.tensor)
                memory = self._view(from_dlpack(capsule), packed.tensor)
                self._addresses[memory.untyped_storage().data_ptr()] = (self, packed.tensor, version)
        if version != packed.version and not self.membership.is_void:
            raise RuntimeError(
                f"{self.names[packed.tensor]} has been modified by optimizer.step() since this graph was made: it is of "
                f"step {version}, the graph of step {packed.version}. Call backward() before step(), or run forward again."
            )
        if memory.dtype != packed.dtype:
            memory = memory.view(packed.dtype)
        if memory.shape == packed.shape and memory.stride() == packed.stride:
            return memory
        return memory.as_strided(packed.shape, packed.stride, packed.offset)


def pack_with(addresses: dict[int, tuple[Unit, int, int]]) -> Callable[[torch.Tensor], Any]:
    """A hook for tensors saved for backward that keeps places instead of a unit's memory."""

    def pack(tensor: torch.Tensor) -> Any:
        try:
            place = addresses.get(tensor.untyped_storage().data_ptr())
        except (NotImplementedError, RuntimeError):
            # Tensors without a storage, as sparse or functional ones, are none of ours.
            return tensor
        if place is None:
            return tensor
        unit, index, version = place
        return Packed(unit, index, version, tensor.dtype, tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    return pack


def unpack(saved: Any) -> torch.Tensor:
    """The other half of what `pack_with()` gives."""
    return saved.unit.unpack(saved) if isinstance(saved, Packed) else saved


# ---- Hidden parameters

_FORMATS = {torch.float32, torch.bfloat16, torch.float16}

# Which unit a parameter is in, and where.
_registry: WeakIdKeyDictionary = WeakIdKeyDictionary()


def place_of(parameter: torch.Tensor) -> tuple[Unit, int] | None:
    """The unit of a parameter, and its index there; None: it is in none."""
    place: tuple[Unit, int] | None = _registry.get(parameter)
    return place


def _nothing(parameter: nn.Parameter) -> torch.Tensor:
    """As large as the parameter, of one element; wrong in each computation, should it ever get into one."""
    value = float("nan") if parameter.is_floating_point() else 0
    return torch.full((), value, dtype=parameter.dtype).expand(parameter.shape)


# What a parameter's metadata is, shown or hidden. No version of torch has all of these.
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
                return function(*args, **kwargs)
        places = [place_of(parameter) for parameter in _hidden_in((args, kwargs))]
        _refuse_writing(function, args, kwargs)
        with ExitStack() as stack:
            for place in places:
                if place is not None:
                    place[0].enter()
                    stack.callback(place[0].leave)
            return function(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Parameter:
        if id(self) not in memo:
            kind: type[nn.Parameter] = type(self).__mro__[2]
            memo[id(self)] = kind(self.detach().clone(memory_format=torch.contiguous_format), self.requires_grad)
        copy: nn.Parameter = memo[id(self)]
        return copy


def _hidden_in(value: Any) -> list[_Hidden]:
    if isinstance(value, _Hidden):
        return [value]
    if isinstance(value, tuple | list):
        return [found for item in value for found in _hidden_in(item)]
    if isinstance(value, dict):
        return [found for item in value.values() for found in _hidden_in(item)]
    return []


_WRITING = {"__set__", "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"}


def _refuse_writing(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises where the function would write to a parameter, whose memory is the daemon's, for all ranks."""
    name = getattr(function, "__name__", "")
    written = kwargs.get("out")
    if (name.endswith("_") and not name.endswith("__")) or name in _WRITING:
        written = args[0]
    place = place_of(written) if isinstance(written, _Hidden) else None
    if place is not None:
        raise RuntimeError(
            f"{place[0].name_of(place[1])} is in the daemon's memory and cannot be written in place ({name}): "
            "give new values with load_state_dict()"
        )
