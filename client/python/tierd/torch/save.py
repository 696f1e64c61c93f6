"""`save()`: the model as files that others load, gathered and written a unit at a time."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tierd._core import Error
from tierd.torch.progress import bar
from tierd.torch.storage import Unit, place_of
from tierd.torch.tensor_files import TensorFile, new_folder, split

if TYPE_CHECKING:
    from tierd.torch.job import TorchJob

Tensors = dict[str, torch.Tensor]

# Names of files that a folder does not have.
_OTHER_FILES = (".pt", ".pth", ".bin", ".ckpt")
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


@dataclass
class _Part:
    """What is gathered and written together: values of a unit, or what the trainer has, by their names in the model."""

    unit: Unit | None
    values: Tensors = field(default_factory=dict)

    def to_write(self, named: Callable[[Tensors], Tensors]) -> Iterator[tuple[str, torch.Tensor]]:
        with self.unit.shown() if self.unit else nullcontext():
            yield from named({name: value.detach() for name, value in self.values.items()}).items()


def write_model(job: TorchJob, path: Path, max_file_bytes: int) -> None:
    """What `save()` does."""
    parts, tied = _parts(job.model)
    named = _naming(job.model, parts)
    shapes = {name: value for part in parts for name, value in named(_shapes(part.values)).items()}
    total = sum(value.nbytes for value in shapes.values())
    is_file = path.suffix == ".safetensors"
    if not path.absolute().parent.is_dir():
        raise Error(
            errno.ENOENT, f"there is no folder {path.absolute().parent}, where {path.name} is to lie: make it first"
        )
    if path.suffix in _OTHER_FILES and not path.is_dir():
        raise Error(
            errno.EINVAL,
            f"{path} is no file of safetensors: say NAME.safetensors, or a folder; torch.save(model.state_dict(), path) writes "
            "PyTorch's own",
        )
    files = [shapes] if is_file else split(shapes, max_file_bytes)
    names = [path.name] if is_file else _file_names(len(files))
    with new_folder(path.parent if is_file else path, total) as folder, bar("saving", total) as advance:
        while True:
            losses = job.membership.losses
            writers = [
                TensorFile(folder / name, tensors, {"format": "pt", **tied})
                for name, tensors in zip(names, files, strict=True)
            ]
            by_tensor = {name: writer for writer, tensors in zip(writers, files, strict=True) for name in tensors}
            try:
                for part in parts:
                    for name, value in part.to_write(named):
                        by_tensor[name].write(name, value)
                        advance(value.nbytes)
            finally:
                for writer in writers:
                    writer.close()
            # Where the job has gone back meanwhile there would be values of two steps.
            if losses == job.membership.losses:
                break
        if not is_file:
            _write_others(job.model, folder, names, files, total)
        _move(folder, path.parent if is_file else path, [] if is_file else names)


def _parts(model: nn.Module) -> tuple[list[_Part], dict[str, str]]:
    """All that a state_dict has, without copies; and which names are left out, as they are tied to others."""
    state = model.state_dict(keep_vars=True)
    for name in getattr(model, "_keys_to_ignore_on_save", None) or ():
        state.pop(name, None)
    first: dict[int, str] = {}
    by_unit: dict[Unit | None, _Part] = {}
    tied = {}
    aliases = set(getattr(model, "all_tied_weights_keys", None) or ())
    # Among tied names the library reads those that it does not tie itself.
    for name in sorted(state, key=lambda name: name in aliases):
        value = state[name]
        if not isinstance(value, torch.Tensor):
            raise Error(
                errno.EINVAL,
                f"{name} of the model's state_dict is of type {type(value).__name__}: files have tensors alone",
            )
        place = place_of(value)
        kept = first.setdefault(id(value), name)
        if kept != name:
            tied[name] = kept
            continue
        unit = place[0] if place is not None else None
        by_unit.setdefault(unit, _Part(unit)).values[name] = value
    return list(by_unit.values()), tied


def _shapes(values: Tensors) -> Tensors:
    return {name: torch.empty(value.shape, dtype=value.dtype, device="meta") for name, value in values.items()}


# ---- Hugging Face's models


def _library_of(model: nn.Module) -> Any:
    """transformers, if the model is one of its."""
    library = sys.modules.get("transformers")
    return library if library is not None and isinstance(model, library.PreTrainedModel) else None


def _naming(model: nn.Module, parts: list[_Part]) -> Callable[[Tensors], Tensors]:
    """How parts are called in files: as in the model; or as on the hub, where the library has others in its modules, and
    what belongs together lies in one part."""
    library = _library_of(model)
    core = getattr(library, "core_model_loading", None)
    if core is None or not hasattr(core, "revert_weight_conversion"):
        return lambda values: values

    def on_hub(values: Tensors) -> Tensors:
        found: Tensors = core.revert_weight_conversion(model, values)
        return found

    whole = on_hub({name: value for part in parts for name, value in _shapes(part.values).items()})
    try:
        each = {name: value for part in parts for name, value in on_hub(_shapes(part.values)).items()}
    except (RuntimeError, ValueError, LookupError):  # a part lacks what the library wants together
        each = {}
    are_equal = {name: value.shape for name, value in each.items()} == {
        name: value.shape for name, value in whole.items()
    }
    return on_hub if are_equal else lambda values: values


def _write_others(model: nn.Module, folder: Path, names: list[str], files: list[Tensors], total: int) -> None:
    """The index, and what the library has beside the weights."""
    if len(names) > 1:
        index = {
            "metadata": {"total_size": total},
            "weight_map": {tensor: name for name, tensors in zip(names, files, strict=True) for tensor in tensors},
        }
        (folder / _INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    library = _library_of(model)
    if library:
        others = folder / "others"
        with _without_bars(library.utils.logging):
            model.save_pretrained(others, state_dict={})  # type: ignore[operator]
        for file in others.iterdir():
            if file.suffix != ".safetensors" and file.name != _INDEX:
                file.rename(folder / file.name)


@contextmanager
def _without_bars(logging: Any) -> Iterator[None]:
    """It would show one of no weights."""
    has_bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if has_bars:
            logging.enable_progress_bar()


def _file_names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]


def _move(folder: Path, target: Path, names: list[str]) -> None:
    """Puts the files where they belong; then the folder has no others of a model."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name == _INDEX):
        if file.is_file():
            os.replace(file, target / file.name)
    for file in target.iterdir() if names else ():
        is_of_model = _SHARD.fullmatch(file.name) or file.name in ("model.safetensors", _INDEX)
        if is_of_model and file.name not in names and not (file.name == _INDEX and len(names) > 1):
            file.unlink()
