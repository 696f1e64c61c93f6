"""Which parameters are gathered together, and which modules' calls need them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tierd._core import Error
from tierd.torch.arguments import closest, wrong_type

# Outside of blocks a parameter of at least so many elements is a unit of its own; smaller ones share units up to that.
LARGE = 1 << 20

# Elements, of whose multiples tensors take no more.
ALIGN = 256

Chooser = Sequence[str] | Callable[[str, nn.Module], bool]


@dataclass
class Entry:
    """A parameter, with all the names that it has in the model."""

    parameter: nn.Parameter
    names: list[str]


@dataclass
class Plan:
    """A unit to be: its parameters, all trained or all frozen, and the modules before whose forward it is gathered."""

    name: str
    is_trained: bool = True
    entries: list[Entry] = field(default_factory=list)
    modules: list[nn.Module] = field(default_factory=list)
    gradient_dtype: torch.dtype | None = None  # that autograd is to make gradients in; None: each parameter says it

    def set_gradient_dtype(self) -> None:
        """Has autograd make gradients in it, and sum them so."""
        for entry in self.entries if self.gradient_dtype is not None else []:
            entry.parameter.grad_dtype = self.gradient_dtype

    @property
    def elements(self) -> int:
        return sum(entry.parameter.numel() for entry in self.entries)

    @property
    def has_wide_gradients(self) -> bool:
        """All of them are in float32 where autograd gives some of them so that are of narrower parameters."""
        narrow = [entry.parameter for entry in self.entries if entry.parameter.dtype in (torch.bfloat16, torch.float16)]
        dtypes = (self.gradient_dtype or getattr(parameter, "grad_dtype", None) for parameter in narrow)
        return torch.float32 in dtypes

    @property
    def gradient_bytes(self) -> int:
        """What its gradients take, with what lies between the tensors, at most."""
        if not self.is_trained:
            return 0
        least = 4 if self.has_wide_gradients else 0
        parameters = [entry.parameter for entry in self.entries]
        return sum(-(-each.numel() // ALIGN) * ALIGN * max(each.element_size(), least) for each in parameters)


def room_for_gradients(plans: list[Plan]) -> int:
    """Bytes of a rank's room for gradients: the largest unit's, and those of three others that are summed meanwhile.

    Two units may be larger than the others without being among these: an embedding and a head.
    """
    sizes = sorted((plan.gradient_bytes for plan in plans), reverse=True)
    return sizes[0] + 3 * sizes[:3][-1] if sizes else 0


def choose(
    model: nn.Module, chooser: Chooser | None = None, is_trained: Callable[[nn.Parameter], bool] = lambda _: True
) -> list[Plan]:
    """Divides a model's parameters into units, in the order of its modules.

    chooser: names of classes whose modules are units, or a function of a module's name and the module that says so.
    None: the classes of `_no_split_modules` (Hugging Face), and the elements of `ModuleList`s and `Sequential`s. The
    outermost such module counts. What lies in no such module, or in several, is a unit by itself where it is large,
    else with its neighbours. What is trained and what is frozen are never in one unit: no step waits for a view of the
    latter, and gradient buffers are as large as the former.
    """
    blocks = _blocks(model, chooser)
    plans: list[Plan] = []
    by_block: dict[str, Plan] = {}
    small: dict[bool, Plan] = {}  # by whether it is trained
    for entry, owners in owned(model):
        trained = is_trained(entry.parameter)
        home = _home(blocks, owners)
        if home is not None:
            name = home[0] if trained else f"{home[0]}.frozen"
            if name not in by_block:
                by_block[name] = Plan(name, trained, modules=[home[1]])
                plans.append(by_block[name])
            by_block[name].entries.append(entry)
            continue
        size = entry.parameter.numel()
        if size >= LARGE or trained not in small or small[trained].elements + size > LARGE:
            plan = Plan(entry.names[0], trained)
            plans.append(plan)
            if size < LARGE:
                small[trained] = plan
        else:
            plan = small[trained]
        plan.entries.append(entry)
        plan.modules += [owner for owner in owners if not any(owner is module for module in plan.modules)]
    return plans


def _home(blocks: dict[int, tuple[str, nn.Module]], owners: list[nn.Module]) -> tuple[str, nn.Module] | None:
    """The one block that has all these modules in it."""
    homes = {blocks[id(owner)][0] if id(owner) in blocks else None for owner in owners}
    return blocks[id(owners[0])] if len(homes) == 1 and None not in homes else None


def owned(model: nn.Module) -> Iterable[tuple[Entry, list[nn.Module]]]:
    """Each parameter once, with the modules that have it as their own."""
    found: dict[int, tuple[Entry, list[nn.Module]]] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, parameter in module.named_parameters(prefix, recurse=False, remove_duplicate=False):
            entry, owners = found.setdefault(id(parameter), (Entry(parameter, []), []))
            entry.names.append(name)
            if not any(owner is module for owner in owners):
                owners.append(module)
    return found.values()


def _blocks(model: nn.Module, chooser: Chooser | None) -> dict[int, tuple[str, nn.Module]]:
    """For each module inside of a block the block's name and the block."""
    is_block = _chooser(model, chooser)
    inside: dict[int, tuple[str, nn.Module]] = {}
    for name, module in model.named_modules():
        if id(module) in inside or module is model or not is_block(name, module):
            continue
        if any(True for _ in module.parameters()):
            for part in module.modules():
                inside.setdefault(id(part), (name, module))
    return inside


def _class_names(model: nn.Module, chooser: Any) -> set[str]:
    """TypeError: they are no names of classes. tierd.Error: one is of no module with parameters."""
    if isinstance(chooser, str) or not isinstance(chooser, Iterable):
        raise wrong_type("units", chooser, 'a list of names is wanted, such as ["Block"], or a function')
    names = set(chooser)
    inner = (module for module in model.modules() if module is not model)
    there = sorted({type(module).__name__ for module in inner if any(True for _ in module.parameters())})
    for name in names:
        if not isinstance(name, str):
            raise wrong_type("an element of units", name, "the name of a class is wanted, as a text")
        if name not in there:
            raise Error(
                errno.EINVAL,
                f"units has {name!r}, and no module in the model with parameters is of such a class{closest(name, there)} "
                f"(there {'are ' + ', '.join(there) if there else 'is none'})",
            )
    return names


def _chooser(model: nn.Module, chooser: Chooser | None) -> Callable[[str, nn.Module], bool]:
    if callable(chooser):
        return chooser
    if chooser is not None:
        names = _class_names(model, chooser)
        return lambda name, module: type(module).__name__ in names
    # Some models say a list, some a set, some nothing.
    classes = set(getattr(model, "_no_split_modules", None) or ())
    elements = {
        id(element)
        for container in model.modules()
        if isinstance(container, nn.ModuleList | nn.Sequential)
        for element in container
        if not isinstance(element, nn.ModuleList | nn.ModuleDict | nn.ParameterList | nn.ParameterDict)
        and any(True for _ in element.children())
    }
    return lambda name, module: type(module).__name__ in classes or id(module) in elements
