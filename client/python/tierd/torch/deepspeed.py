"""A configuration of DeepSpeed, read for `initialize(config=…)`: what of it tierd has, and what it leaves out.

A value "auto" is one that is not there. What has been read is taken out of a copy of the configuration, so that all
that is left is what is left out.
"""

from __future__ import annotations

import copy
import difflib
import errno
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from tierd import _core
from tierd._core import Error
from tierd.torch.arguments import closest, wrong_type

Config: TypeAlias = str | Path | Mapping[str, Any]

# How close to a name that is read another one is a slip of it.
_LIKENESS = 0.8

_PLACES = {"cpu": _core.PLACE_HOST, "nvme": _core.PLACE_NVME}


class Reading:
    """A configuration that is read, value by value."""

    def __init__(self, config: Config):
        self._rest = _contents(config)
        self._names: dict[str, list[str]] = {}  # that were asked for, by the section

    def take(self, path: str) -> Any:
        """The value at a path, such as "zero_optimization.stage". None: it is not there, or is "auto"."""
        *parents, name = path.split(".")
        section: Any = self._rest
        for i, each in enumerate([*parents, name]):
            self._names.setdefault(".".join(parents[:i]), []).append(each)
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        value = section.pop(name, None) if isinstance(section, dict) else None
        return None if value == "auto" else value

    def left_out(self, section: str = "") -> list[str]:
        """The paths of what nobody has taken and that is not "auto" or switched off. tierd.Error: one of them is misspelt."""
        paths = sorted(path for path in _paths(self._rest, "") if path.startswith(section))
        for path in paths:
            self._check_names(path)
        return paths

    def _check_names(self, path: str) -> None:
        """What is close to a name that is read is a mistake, and no option of DeepSpeed's that tierd does without."""
        *parents, name = path.split(".")
        for i, each in enumerate([*parents, name]):
            section = ".".join(parents[:i])
            names = self._names.get(section, [])
            if each not in names and difflib.get_close_matches(each, names, n=1, cutoff=_LIKENESS):
                where = f"{section} of the configuration" if section else "the configuration"
                raise Error(errno.EINVAL, f"{where} has {each!r}{closest(each, names)}")


def _contents(config: Config) -> dict[str, Any]:
    """A copy. TypeError, tierd.Error: it is no path, or what is there no dict."""
    found: Any = config
    if isinstance(config, str | Path):
        try:
            found = json.loads(Path(config).read_text())
        except ValueError as error:
            raise Error(errno.EINVAL, f"{config} is no configuration of DeepSpeed, which is JSON: {error}") from error
    if not isinstance(found, Mapping):
        name = "config" if found is config else f"what {config} has"
        raise wrong_type(name, found, "the path of a configuration of DeepSpeed is wanted, or its dict")
    return copy.deepcopy(dict(found))


def _paths(section: dict[str, Any], prefix: str) -> list[str]:
    found = []
    for name, value in section.items():
        if isinstance(value, dict):
            if value.get("enabled") is not False:
                found += _paths(value, f"{prefix}{name}.")
        elif value not in (None, False, "auto"):
            found.append(f"{prefix}{name}")
    return found


def read(
    config: Config,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    world_size: int,
    arguments: Mapping[str, Any],
) -> tuple[torch.optim.Optimizer | None, dict[str, Any], list[str]]:
    """What a configuration says.

    Args:
        model: its parameters of float32 become bfloat16 where the configuration says so.
        optimizer: the user's; None: that of the configuration is made.
        arguments: those of `initialize()`, None where the user has given none.

    Returns:
        The optimizer; the arguments with what the configuration adds; the paths of what is left out.

    Raises:
        tierd.Error: it cannot be read, or contradicts an argument, the optimizer or itself.
    """
    reading = Reading(config)
    found = dict(arguments)
    zero = "zero_optimization"
    _agree(found, "stage", f"{zero}.stage", reading.take(f"{zero}.stage"))
    _agree(found, "max_grad_norm", "gradient_clipping", reading.take("gradient_clipping"))
    for part, option in (("offload_param", "parameter_placement"), ("offload_optimizer", "optimizer_placement")):
        _agree(found, option, f"{zero}.{part}.device", _PLACES.get(reading.take(f"{zero}.{part}.device")))
        folder, nvme = reading.take(f"{zero}.{part}.nvme_path"), found.get("nvme")
        if folder is not None and nvme is not None and Path(folder) != Path(nvme.rpartition(":")[0]):
            raise Error(errno.EINVAL, f"{zero}.{part}.nvme_path is {folder}, but nvme={nvme!r}")
    _check_batches(reading, world_size)
    _set_precision(reading, model)
    made = _optimizer(reading, model, optimizer)
    return made, found, reading.left_out()


def _agree(found: dict[str, Any], argument: str, path: str, value: Any) -> None:
    if value is None:
        return
    if found.get(argument) not in (None, value):
        raise Error(
            errno.EINVAL, f"{path} of the configuration means {argument}={value}, but {argument}={found[argument]}"
        )
    found[argument] = value


def _check_batches(reading: Reading, world_size: int) -> None:
    total, each = reading.take("train_batch_size"), reading.take("train_micro_batch_size_per_gpu")
    parts = reading.take("gradient_accumulation_steps")
    if None not in (total, each, parts) and total != each * parts * world_size:
        raise Error(
            errno.EINVAL,
            f"train_batch_size is {total}, but train_micro_batch_size_per_gpu {each} × gradient_accumulation_steps {parts} "
            f"× {world_size} ranks are {each * parts * world_size}",
        )


def _set_precision(reading: Reading, model: nn.Module) -> None:
    # DeepSpeed's older name for the same.
    is_bf16 = reading.take("bf16.enabled") or reading.take("bfloat16.enabled")
    is_fp16 = reading.take("fp16.enabled")
    if is_bf16 and is_fp16:
        raise Error(errno.EINVAL, "bf16.enabled and fp16.enabled are both true: a model has one format")
    for name, parameter in model.named_parameters():
        if is_fp16 and parameter.requires_grad and parameter.dtype != torch.float16:
            raise Error(
                errno.ENOTSUP,
                f"fp16.enabled is true, but {name} is {parameter.dtype}: say bf16, which needs no loss scale; or call "
                "model.half() and scale the loss yourself",
            )
        if is_bf16 and parameter.dtype == torch.float32:
            parameter.data = parameter.data.to(torch.bfloat16)


# ---- The optimizer

_KINDS: dict[str, type[torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def _optimizer(
    reading: Reading, model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> torch.optim.Optimizer | None:
    name = reading.take("optimizer.type")
    if name is None:
        return optimizer
    kind = _KINDS.get(name.lower())
    if kind is None:
        raise Error(errno.ENOTSUP, f"optimizer.type is {name}: tierd makes AdamW, Adam and SGD of a configuration")
    # DeepSpeed's Adam decays as AdamW does, unless it is told otherwise.
    is_decoupled = reading.take("optimizer.params.adam_w_mode")
    if name.lower() == "adam" and is_decoupled is False:
        kind = torch.optim.Adam
    params = {
        key: value
        for key in ("lr", "betas", "eps", "weight_decay", "momentum")
        if (value := reading.take(f"optimizer.params.{key}")) is not None
    }
    if optimizer is None:
        if kind is torch.optim.AdamW:
            params.setdefault("weight_decay", 0.0)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return kind(trained, **params) if trained else None
    if type(optimizer) is not kind:
        raise Error(
            errno.EINVAL,
            f"optimizer.type is {name}, which is {kind.__name__}, but optimizer is {type(optimizer).__name__}",
        )
    for key, value in params.items():
        own = optimizer.defaults.get(key)
        if own != (tuple(value) if isinstance(value, list) else value):
            raise Error(errno.EINVAL, f"optimizer.params.{key} is {value}, but optimizer has {key}={own}")
    return optimizer


# ---- The scheduler


def scheduler(config: Config, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """The scheduler of a configuration: WarmupLR, WarmupDecayLR or WarmupCosineLR.

    Args:
        config: path of a file, or a dict.
        optimizer: whose learning rates it sets. They are also what it rises to where `warmup_max_lr` is not given.

    Returns:
        A scheduler of torch, to be stepped after each `optimizer.step()`.

    Raises:
        tierd.Error: the configuration has none, another one, or one without what it needs.
    """
    reading = Reading(config)
    name = reading.take("scheduler.type")
    if name not in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        raise Error(errno.ENOTSUP, f"scheduler.type is {name}: there are WarmupLR, WarmupDecayLR and WarmupCosineLR")
    options = {key: reading.take(f"scheduler.params.{key}") for key in _DEFAULTS}
    options = {key: default if options[key] is None else options[key] for key, default in _DEFAULTS.items()}
    total = reading.take("scheduler.params.total_num_steps")
    reading.left_out("scheduler.")
    if name != "WarmupLR" and total is None:
        raise Error(errno.EINVAL, f"{name} needs scheduler.params.total_num_steps")
    warmup = max(2, int(options["warmup_num_steps"]))

    def rise(step: int) -> float:
        is_linear = options["warmup_type"] == "linear"
        return float(step / warmup if is_linear else math.log(step + 1) / math.log(warmup))

    def fall(step: int) -> float:
        if name == "WarmupLR":
            return 1.0
        if name == "WarmupDecayLR":
            return float(max(0.0, (total - step) / max(1.0, total - warmup)))
        least = options["cos_min_ratio"]
        part = min(1.0, (step - warmup + 1) / max(1, total - warmup))
        return float(max(0.0, least + (1 - least) * (1 + math.cos(math.pi * part)) / 2))

    def factor(group: dict[str, Any]) -> Any:
        if name == "WarmupCosineLR":
            first, last = options["warmup_min_ratio"], 1.0
        else:
            rate = group["lr"]
            most = rate if options["warmup_max_lr"] is None else options["warmup_max_lr"]
            first, last = options["warmup_min_lr"] / rate, most / rate
        return lambda step: first + (last - first) * (rise(step) if step < warmup else fall(step))

    return LambdaLR(optimizer, [factor(group) for group in optimizer.param_groups])


_DEFAULTS: dict[str, Any] = {
    "warmup_min_lr": 0.0,
    "warmup_max_lr": None,
    "warmup_num_steps": 1000,
    "warmup_type": "log",
    "warmup_min_ratio": 0.0,
    "cos_min_ratio": 0.0001,
}
