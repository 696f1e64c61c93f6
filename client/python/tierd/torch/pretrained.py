"""`from_pretrained()`: gives a model the values of a checkpoint of safetensors, before it is put on tierd."""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

import torch
from torch import nn

from tierd._core import Error
from tierd.torch import arguments, compat
from tierd.torch.meta import replace
from tierd.torch.pages import rest
from tierd.torch.progress import bar
from tierd.torch.ranks import from_environment
from tierd.torch.safetensors import Stored, files_of, tensors_of
from tierd.torch.scratch import LEAST_BYTES, Scratch, is_scratch
from tierd.torch.storage import place_of

# So many names are in an error; the rest is counted.
_MOST_NAMES = 5


class Differences(NamedTuple):
    """Where a checkpoint and a model have not the same names."""

    missing: list[str]  # of the model, whose values stay
    unexpected: list[str]  # of the checkpoint


def from_pretrained(
    model: nn.Module, folder: str | os.PathLike[str], *, strict: bool = True, scratch: str | None = None
) -> Differences:
    """Gives a model the values of a checkpoint, tensor by tensor, before `tierd.torch.initialize()`.

    A model that was made in `tierd.torch.init()`, or is on meta, needs no memory for it: its parameters then are those
    bytes of the files, if they are of their type, and are read when the job takes them. So the files must stay as they are
    until then. Others are converted as torch converts them.

    Args:
        model: whose parameters and persistent buffers have the names of the checkpoint; as in transformers the name of the
            base model may be in front, or not.
        folder: with *.safetensors, of one file or of several with an index (model.safetensors.index.json), as
            save_pretrained() and the Hugging Face Hub have them; or one such file.
        strict: False: names that only the model or only the checkpoint has are no error. What the model's class says is
            to be ignored is none in any case.
        scratch: for what is on meta and has to be converted: a folder on a disk; None: $TMPDIR, else /var/tmp.

    Returns:
        (missing, unexpected): names that only the model has, and that only the checkpoint has.

    Raises:
        tierd.Error: no checkpoint (ENOENT); other shapes, or names if strict, which are listed, with nothing changed
            (EINVAL); a file that is not of the format or was cut off (EINVAL); a model that is on tierd already (EBUSY).
    """
    arguments.module(model)
    if any(place_of(parameter) is not None for parameter in model.parameters()):
        raise Error(
            errno.EBUSY,
            "the model is on tierd already, and has the job's values: call from_pretrained() before initialize()",
        )
    own = {name: item for name, item in model.state_dict(keep_vars=True).items() if isinstance(item, torch.Tensor)}
    found: dict[str, Stored] = {}
    unexpected = []
    for path in files_of(folder):
        for name, stored in tensors_of(path):
            own_name = _own_name(own, name, getattr(model, "base_model_prefix", ""))
            if own_name is None:
                unexpected.append(name)
            else:
                found[own_name] = stored
    # Tied ones are one tensor with several names, of which the first that is there counts.
    chosen: dict[int, tuple[str, torch.Tensor, Stored]] = {}
    for name, tensor in own.items():
        if name in found and id(tensor) not in chosen:
            chosen[id(tensor)] = (name, tensor, found[name])
    missing = [name for name, tensor in own.items() if id(tensor) not in chosen]
    differences = Differences(
        _without(missing, model, "_keys_to_ignore_on_load_missing"),
        _without(unexpected, model, "_keys_to_ignore_on_load_unexpected"),
    )
    _check(differences if strict else Differences([], []), list(chosen.values()), folder)
    files = Scratch(scratch)
    with bar("loading", sum(stored.size for _, _, stored in chosen.values())) as advance, torch.no_grad():
        for _, tensor, stored in chosen.values():
            _load(tensor, stored, files)
            advance(stored.size)
    files.finish()
    return differences


def _own_name(own: dict[str, torch.Tensor], name: str, base: str) -> str | None:
    """The model's name for one of a checkpoint of the model, of its base model, or of one that has it as its base."""
    names = (name, f"{base}.{name}", name.removeprefix(f"{base}."))
    return next((candidate for candidate in names if candidate in own), None)


def _without(names: list[str], model: nn.Module, attribute: str) -> list[str]:
    patterns = getattr(model, attribute, None) or ()
    return [name for name in names if not any(re.search(pattern, name) for pattern in patterns)]


def _check(
    differences: Differences,
    chosen: list[tuple[str, torch.Tensor, Stored]],
    folder: str | os.PathLike[str],
) -> None:
    problems = [
        f"{len(names)} tensors are only in {whose}: {_listed(names)}"
        for names, whose in ((differences.missing, "the model"), (differences.unexpected, "the checkpoint"))
        if names
    ]
    shapes = [
        f"{name} is {list(stored.shape)} there and {list(tensor.shape)} in the model"
        for name, tensor, stored in chosen
        if tuple(tensor.shape) != stored.shape
    ]
    if shapes:
        raise Error(
            errno.EINVAL, f"{folder} is of another architecture: {_listed(shapes)}: make the model of its config.json"
        )
    if problems:
        raise Error(
            errno.EINVAL,
            f"{folder} and the model differ: {'; '.join(problems)}. Say strict=False if that is right; where transformers "
            "renames or joins what its files have, call its own from_pretrained() in tierd.init()",
        )


def _listed(items: list[str]) -> str:
    more = len(items) - _MOST_NAMES
    return ", ".join(items[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _load(tensor: torch.Tensor, stored: Stored, files: Scratch) -> None:
    values = stored.values()
    if not isinstance(tensor, nn.Parameter):
        # Buffers stay in the trainer, so they have memory of their own.
        if tensor.is_meta:
            torch.utils.swap_tensors(tensor, values.to(tensor.dtype, copy=True))
        else:
            tensor.copy_(values)
    elif tensor.is_meta:
        # Rank 0 gives a new job its values.
        if from_environment()[0] == 0:
            replace(tensor, _converted(values, tensor.dtype, files))
    elif is_scratch(tensor) and values.dtype == tensor.dtype and not compat.is_storage_shared(tensor):
        tensor.data = values
    else:
        tensor.copy_(values)
        rest(tensor)
    rest(values)


def _converted(values: torch.Tensor, dtype: torch.dtype, files: Scratch) -> torch.Tensor:
    if values.dtype == dtype:
        return values
    if values.numel() * dtype.itemsize < LEAST_BYTES:
        return values.to(dtype)
    converted = files.empty(dtype, values.shape).copy_(values)
    files.touch(converted)
    return converted
