"""What users pass: it is looked at before anything is done.

What is of a wrong type, or has an unknown name, is a TypeError; what has a wrong value is a tierd.Error. Both name the
argument, what was given, and what is wanted.
"""

from __future__ import annotations

import difflib
import errno
import inspect
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tierd import _core
from tierd._core import Error

Optimizer = torch.optim.Optimizer

_SUFFIXES = "KMGT"
_SIZES = {"host_budget", "nvme_budget", "gpu_budget", "blob_bytes"}
# Options whose values have names.
_PLACES = {
    "default": _core.PLACE_DEFAULT,
    "host": _core.PLACE_HOST,
    "nvme": _core.PLACE_NVME,
    "auto": _core.PLACE_AUTO,
}
_WORDS: dict[str, Mapping[str, int]] = {
    "parameter_placement": _PLACES,
    "optimizer_placement": _PLACES,
    "gradient_placement": _PLACES,
    "durability": {
        "default": _core.DURABILITY_DEFAULT,
        "step": _core.DURABILITY_STEP,
        "none": _core.DURABILITY_NONE,
    },
    "nonfinite": {"skip": _core.NONFINITE_SKIP, "report": _core.NONFINITE_REPORT},
    "sharing": {"private": _core.PRIVATE, "read": _core.SHARE_READ, "train": _core.SHARE_TRAIN},
    "mode": {"either": _core.EITHER, "create": _core.CREATE, "resume": _core.RESUME, "replace": _core.REPLACE},
}
# Options that are an argument under another name.
_OTHER_NAMES = {"name": "job", "clip_norm": "max_grad_norm", "gpu": "device"}


# ---- Words


def closest(name: str, known: Iterable[str]) -> str:
    """What to add to an error: ": did you mean X?" if a name that there is comes close, else nothing."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f": did you mean {found[0]}?" if found else ""


def given(value: object) -> str:
    """A value in a sentence: itself if it is short, else of which type it is."""
    is_short = value is None or isinstance(value, bool | int | float | str | type)
    return repr(value) if is_short else f"of type {type(value).__name__}"


def wrong_type(name: str, value: object, wanted: str) -> TypeError:
    return TypeError(f"{name} is {given(value)}: {wanted}")


# ---- Values


def integer(name: str, value: Any) -> int:
    """TypeError: it is none."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise wrong_type(name, value, "a whole number is wanted") from None


def count(name: str, value: Any) -> int:
    """tierd.Error: it is less than one."""
    number = integer(name, value)
    if number < 1:
        raise Error(errno.EINVAL, f"{name} is {number}: it is 1 at least")
    return number


def size(name: str, value: Any) -> int:
    """Bytes, also of a text such as "8G" (K, M, G or T, of 1024). tierd.Error: it is no such text."""
    if not isinstance(value, str):
        number = integer(name, value)
    else:
        found = re.fullmatch(rf"(\d+)([{_SUFFIXES}]?)", value.strip(), re.IGNORECASE | re.ASCII)
        if found is None:
            raise Error(errno.EINVAL, f'{name} is {value!r}: a size is bytes, or a text such as "8G" (K, M, G or T)')
        number = int(found[1]) << 10 * (_SUFFIXES.find(found[2].upper()) + 1 if found[2] else 0)
    if not 0 <= number < 1 << 63:
        raise Error(errno.EINVAL, f"{name} is {value!r}: a size is not negative, and less than 2^63 bytes")
    return number


def real(name: str, value: Any) -> float:
    """TypeError: it is none."""
    try:
        if isinstance(value, bool | str):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise wrong_type(name, value, "a number is wanted") from None


def norm(name: str, value: Any) -> float:
    """What gradients are clipped to; 0: they are not, which infinity says, too. tierd.Error: it is negative or NaN."""
    number = real(name, value)
    if math.isnan(number) or number < 0:
        raise Error(errno.EINVAL, f"{name} is {number}: a norm is above 0; 0 does not clip")
    return 0.0 if math.isinf(number) else number


def text(name: str, value: Any) -> str:
    """TypeError: it is none."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "a text is wanted")
    return value


def flag(name: str, value: Any) -> bool:
    """TypeError: it is neither True nor False."""
    if not isinstance(value, bool):
        raise wrong_type(name, value, "True or False is wanted")
    return value


def socket_path(value: Any) -> str | None:
    """The argument socket. TypeError: it is no path."""
    if value is not None and not isinstance(value, str | os.PathLike):
        raise wrong_type("socket", value, "the path of a socket is wanted")
    return None if value is None else os.fspath(value)


def options(values: Mapping[str, Any], call: Callable[..., Any]) -> dict[str, Any]:
    """The further options of a call, as the job is opened with them: sizes and words are numbers.

    TypeError: there is none of this name.
    """
    own = [name for name, item in inspect.signature(call).parameters.items() if item.kind != item.VAR_KEYWORD]
    known = [name for name in _core.JOB_OPTIONS if name not in _OTHER_NAMES]
    found = {}
    for name, value in values.items():
        if name not in known:
            hint = f": say {_OTHER_NAMES[name]}=" if name in _OTHER_NAMES else closest(name, [*own, *known])
            raise TypeError(f"{call.__name__}() has no argument {name!r}{hint}")
        found[name] = _option(name, value)
    return found


def _option(name: str, value: Any) -> Any:
    words = _WORDS.get(name)
    if name in _SIZES:
        return size(name, value)
    if words is not None and isinstance(value, str):
        if value not in words:
            raise Error(errno.EINVAL, f"{name} is {value!r}: there are {', '.join(words)}")
        return words[value]
    return value


def gpu_tier(value: Any, options: Mapping[str, Any], device: torch.device) -> bool | None:
    """The argument gpu_tier. tierd.Error: it, or gpu_budget, does not go with where the model is computed."""
    given = None if value is None else flag("gpu_tier", value)
    named = "gpu_tier=True" if given else "gpu_budget" if options.get("gpu_budget") else ""
    if named and (device.type == "cpu" or given is False):
        where = "the model is computed on the processor" if device.type == "cpu" else "gpu_tier=False wants none"
        raise Error(errno.EINVAL, f"{named} is for the daemon's memory on a GPU, and {where}")
    return given


# ---- Models and optimizers


def module(model: Any, optimizer: Any = None) -> None:
    """TypeError: the model is none."""
    if isinstance(model, nn.Module):
        return
    if isinstance(optimizer, nn.Module):
        raise wrong_type("model", model, f"the model comes first, and optimizer is {given(optimizer)}")
    raise wrong_type("model", model, "a torch.nn.Module is wanted")


def optimizers(optimizer: Any) -> list[Optimizer]:
    """The one, or the several, in a list. TypeError: it is something else."""
    if isinstance(optimizer, Optimizer):
        return [optimizer]
    wanted = "an optimizer is wanted, such as torch.optim.AdamW(model.parameters()), or a list of several"
    if not isinstance(optimizer, Sequence) or isinstance(optimizer, str):
        raise wrong_type("optimizer", optimizer, wanted)
    for i, each in enumerate(optimizer):
        if not isinstance(each, Optimizer):
            raise wrong_type(f"optimizer[{i}]", each, wanted)
    return list(optimizer)


def check_parameters(optimizers: Sequence[Optimizer], model: nn.Module) -> None:
    """tierd.Error: a parameter of an optimizer is not the model's, or is also another optimizer's."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    owners: dict[int, Optimizer] = {}
    for optimizer in optimizers:
        _check_owned(optimizer, names)
        for parameter in _parameters(optimizer):
            other = owners.setdefault(id(parameter), optimizer)
            if other is not optimizer:
                kinds = f"{type(other).__name__} and in {type(optimizer).__name__}"
                raise Error(errno.EINVAL, f"{names[id(parameter)]} is in {kinds}: each parameter has one optimizer")


def _parameters(optimizer: Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _check_owned(optimizer: Optimizer, names: Mapping[int, str]) -> None:
    name, everything = type(optimizer).__name__, _parameters(optimizer)
    foreign = [parameter for parameter in everything if id(parameter) not in names]
    if not foreign:
        return
    if len(foreign) == len(everything):
        raise Error(
            errno.EINVAL,
            f"no parameter of {name} is one of this model's: make the optimizer over model.parameters(), of this model, "
            "after all that gives it new ones",
        )
    groups = [
        str(i)
        for i, group in enumerate(optimizer.param_groups)
        if any(id(parameter) not in names for parameter in group["params"])
    ]
    raise Error(
        errno.EINVAL,
        f"{len(foreign)} of the {len(everything)} parameters of {name} are not the model's, in group"
        f"{'s' if len(groups) > 1 else ''} {', '.join(groups)} (one of shape {list(foreign[0].shape)}): put all that it "
        "trains into one nn.Module, and give that; or give the others an optimizer of their own",
    )
