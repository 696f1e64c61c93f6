"""`plan()`: what a model's job would take of this node, before it is trained, by the planner of tierd itself."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from tierd import _core, daemon
from tierd._core import Error
from tierd.control import ask
from tierd.report import Report, Table, text_of_bytes, text_of_seconds
from tierd.torch import arguments
from tierd.torch.opening import MOMENTS, Opening, open_as
from tierd.torch.ranks import from_environment
from tierd.torch.units import Chooser

_FORMATS = {_core.FP32: "fp32", _core.BF16: "bf16", _core.FP16: "fp16", _core.BYTES: "bytes"}
_OPTIMIZERS = {_core.ADAMW: "adamw", _core.ADAM: "adam", _core.LION: "lion", _core.SGD: "sgd", _core.NONE: "none"}
_PLACES = {_core.PLACE_HOST: "host", _core.PLACE_NVME: "nvme"}
_MOMENTS = {number: name for name, number in MOMENTS.items()}
_DURABILITIES = {_core.DURABILITY_STEP: "step", _core.DURABILITY_NONE: "none"}
_KINDS = ("parameter", "gradient", "optimizer")


def plan(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    *,
    world_size: int | None = None,
    stage: int = 3,
    units: Chooser | None = None,
    moments: str = "fp32",
    optimizer_state_bytes: int | str | None = None,
    gradient_bytes: int | str | None = None,
    gradient_dtype: torch.dtype | None = None,
    may_thaw: bool | Iterable[str] = False,
    random_states: bool = True,
    early_updates: bool = False,
    micro_batches: int = 1,
    socket: str | os.PathLike[str] | None = None,
    nvme: str | None = None,
    **options: Any,
) -> Report:
    """What the job of a model takes of this node, as the daemon plans it: to the byte what it then has.

    Nothing is made, and the model may be on meta. Where no daemon listens it is planned for the private one that
    `initialize()` would start.

    Args:
        model, optimizer, stage, units, moments, optimizer_state_bytes, gradient_bytes, gradient_dtype, may_thaw,
            random_states, early_updates, socket, nvme, options: as of `initialize()`. optimizer None: AdamW of all
            parameters that require gradients, if there are any.
        world_size: ranks, all on this node; None: what the launcher says, else 1.
        micro_batches: backward passes of a step.

    Returns:
        A Report, which prints as a text, is tables in Jupyter, and has its figures as attributes and items:
        parameters, units: how many.
        rank_parameter_bytes, rank_gradient_bytes, rank_optimizer_bytes: of each rank by the formulas of ZeRO.
        parameters_on, gradients_on, optimizer_on: "host" or "nvme".
        host_bytes: memory of the daemon, for all ranks; of it host_parameter_bytes, host_gradient_bytes,
            host_optimizer_bytes, host_buffer_bytes and host_other_bytes. nvme_bytes.
        host_free_bytes, nvme_free_bytes: what there is for it; fits: whether that is enough.
        least_host_budget: bytes of --host-budget with which a daemon has room for it, if nobody else is there.
        read_bytes, written_bytes: what NVMe moves in a step, if nothing stays in memory from one use to the next.
        read_bytes_per_second, written_bytes_per_second, nvme_seconds: what the disks do here, measured for it, and what a
            step's bytes take so. None: nothing is moved, or it cannot be measured without a daemon or the right to write.
        refusal: what a daemon would say, or None.

    Raises:
        tierd.Error: what `initialize()` would say of the model, or the planner of the job (EINVAL).
    """
    arguments.module(model, optimizer)
    options = arguments.options(options, plan)
    socket = arguments.socket_path(socket)
    ranks = from_environment()[1] if world_size is None else arguments.count("world_size", world_size)
    opening = open_as(
        model,
        optimizer,
        "plan",
        rank=0,
        world_size=ranks,
        stage=stage,
        units=units,
        options=options,
        moments=moments,
        optimizer_state_bytes=optimizer_state_bytes,
        gradient_bytes=gradient_bytes,
        gradient_dtype=gradient_dtype,
        may_thaw=may_thaw,
        random_states=random_states,
        early_updates=early_updates,
    )
    return _plan(opening, socket or daemon.find_running(), nvme, arguments.count("micro_batches", micro_batches))


def add_plan(error: BaseException, opening: Opening, socket: str) -> None:
    """Adds the plan to an error that says that there is no room, for whoever reads its traceback."""
    if isinstance(error, Error) and error.errno in (errno.ENOMEM, errno.ENOSPC):
        # The error itself is what matters.
        with contextlib.suppress(Exception):
            error.add_note(f"What the job takes here (tierd.torch.plan()):\n\n{_plan(opening, socket)}")


def _plan(opening: Opening, socket: str | None, nvme: str | None = None, micro_batches: int = 1) -> Report:
    """socket: None: no daemon listens."""
    options = opening.options
    has_nvme = nvme is not None if socket is None else bool(ask("tiers", socket=socket)["nvme"])
    flags = {
        "units": "-",
        "world-size": options["world_size"],
        "stage": options["stage"],
        "micro-batches": micro_batches,
        **_job_flags(opening),
        **(_private_node(nvme) if socket is None else {}),
    }
    found = ask("plan", *_words(flags), socket=socket, given=_units(opening))
    figures = _figures(found, _row(found["stages"][0], has_nvme, options))
    _measure(figures, socket)
    return Report(figures, _parts(figures))


# ---- What tierctl is asked


def _words(flags: dict[str, Any]) -> Iterator[str]:
    for name, value in flags.items():
        yield f"--{name}"
        if value is not True:
            yield str(value)


def _private_node(nvme: str | None) -> dict[str, Any]:
    """The daemon that initialize() would start."""
    return {"host": daemon.default_budget(), "nvme": daemon.split_nvme(nvme)[1] if nvme is not None else 0}


def _job_flags(opening: Opening) -> dict[str, Any]:
    """What initialize() opens the job with, of what changes what it takes."""
    options = opening.options
    kind = opening.rule.kind
    groups = opening.groups_to_open()
    has_momentum = any(group["momentum"] for group in groups)
    flags = {
        "optimizer": "momentum" if kind == _core.SGD and has_momentum else _OPTIMIZERS[kind],
        "blobs": options["blob_bytes"],
    }
    if kind != _core.NONE:
        flags["groups"] = max(1, len(groups))
    for name in ("gradient_buffers", "gradient_bytes", "host_budget", "nvme_budget"):
        if options.get(name):
            flags[name.replace("_", "-")] = options[name]
    if opening.rule.moments != _core.MOMENTS_FP32:
        flags["moments"] = _MOMENTS[opening.rule.moments]
    if options.get("durability", _core.DURABILITY_DEFAULT) != _core.DURABILITY_DEFAULT:
        flags["durability"] = _DURABILITIES.get(options["durability"], options["durability"])
    if "snapshots" in options:
        flags["snapshots"] = 0 if options["snapshots"] == _core.NO_SNAPSHOTS else options["snapshots"]
    if options.get("gradient_placement") in _PLACES:
        flags["gradients"] = _PLACES[options["gradient_placement"]]
    if options.get("pushed_once"):
        flags["pushed-once"] = True
    return flags


def _units(opening: Opening) -> list[dict[str, Any]]:
    units = []
    for unit in opening.units:
        tensors = []
        for tensor in opening.tensors(unit):
            formats = {key: _FORMATS[tensor[key]] for key in ("format", "gradient_format") if key in tensor}
            tensors.append(tensor | formats)
        units.append({"name": unit.name, "tensors": tensors})
    return units


# ---- What it says


def _row(stage: dict[str, Any], has_nvme: bool, options: dict[str, Any]) -> dict[str, Any]:
    """The placement that the job gets: on NVMe is what may be there, unless it is told otherwise."""
    rows: list[dict[str, Any]] = stage["placements"]
    wanted = {}
    for name in ("parameters", "optimizer"):
        place = options.get(f"{name.removesuffix('s')}_placement", _core.PLACE_DEFAULT)
        if place == _core.PLACE_AUTO:
            return next((row for row in rows if row.get("is_auto")), rows[0])
        wanted[name] = _PLACES.get(
            place, "nvme" if has_nvme and (name == "optimizer" or stage["stage"] == 3) else "host"
        )
    for row in rows:
        if all(row[name] == place for name, place in wanted.items()):
            return row
    raise Error(errno.EINVAL, f"parameters are on NVMe at stage 3 alone, and not at stage {stage['stage']}")


def _figures(found: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    stage, parameters = found["stages"][0], found["parameters"]
    moved = {name: round(parameters * row[f"{name}_bytes_per_parameter"]) for name in _MOVED}
    same = ("parameters", "units", "world_size", "optimizer", "micro_batches", "frozen_bytes", "format")
    return {
        **{name: found[name] for name in same},
        "stage": stage["stage"],
        **{f"rank_{kind}_bytes": stage[f"{kind}_bytes_per_rank"] for kind in _KINDS},
        "parameters_on": row["parameters"],
        "gradients_on": row["gradients"],
        "optimizer_on": row["optimizer"],
        **{
            name: row.get(name)
            for name in ("host_bytes", *(f"host_{kind}_bytes" for kind in _HOST_KINDS), "nvme_bytes")
        },
        "host_free_bytes": found.get("host_free_bytes"),
        "nvme_free_bytes": found.get("nvme_free_bytes"),
        "fits": row.get("fits"),
        "least_host_budget": row.get("least", {}).get("host_budget"),
        "read_bytes": sum(moved[name] for name in _MOVED if name.endswith("read")),
        "written_bytes": sum(moved[name] for name in _MOVED if name.endswith("written")),
        "refusal": row.get("refusal"),
    }


_MOVED = ("update_read", "update_written", "gather_read", "gradient_read", "gradient_written")
_HOST_KINDS = (*_KINDS, "buffer", "other")


def _measure(figures: dict[str, Any], socket: str | None) -> None:
    """How long the disks need for a step's bytes, all of them at once."""
    figures |= dict.fromkeys(("read_bytes_per_second", "written_bytes_per_second", "nvme_seconds"))
    if socket is None or figures["read_bytes"] + figures["written_bytes"] == 0:
        return
    speeds = [found for found in ask("doctor", socket=socket)["findings"] if "read_bytes_per_second" in found]
    if speeds:
        read, written = (sum(found[f"{way}_bytes_per_second"] for found in speeds) for way in ("read", "written"))
        figures |= {"read_bytes_per_second": read, "written_bytes_per_second": written}
        figures["nvme_seconds"] = figures["read_bytes"] / read + figures["written_bytes"] / written


def _parts(figures: dict[str, Any]) -> list[str | Table]:
    ranks = f"{figures['world_size']} rank{'s' if figures['world_size'] > 1 else ''}"
    trained = f"{figures['parameters']:,} parameters in {figures['format']} with {figures['optimizer']}"
    frozen = f"{text_of_bytes(figures['frozen_bytes'])} that are frozen"
    what = " and ".join(([trained] if figures["parameters"] else []) + ([frozen] if figures["frozen_bytes"] else []))
    units = f"{figures['units']} unit{'s' if figures['units'] != 1 else ''}"
    title = f"{what}, in {units}; {ranks} of stage {figures['stage']}"
    if figures["host_bytes"] is None:
        return [title, f"It cannot be: {figures['refusal']}"]
    memory = Table(["", "each rank, by ZeRO", "host memory here", "NVMe here"])
    for kind, place in zip(_KINDS, ("parameters_on", "gradients_on", "optimizer_on"), strict=True):
        here = text_of_bytes(figures[f"host_{kind}_bytes"])
        where = "there" if figures[place] == "nvme" else ""
        memory.rows.append([place.removesuffix("_on"), text_of_bytes(figures[f"rank_{kind}_bytes"]), here, where])
    for kind, name in (("buffer", "gradient buffers"), ("other", "definitions, windows, kept values")):
        memory.rows.append([name, "", text_of_bytes(figures[f"host_{kind}_bytes"]), ""])
    memory.rows.append(["together", "", text_of_bytes(figures["host_bytes"]), text_of_bytes(figures["nvme_bytes"])])
    if figures["host_free_bytes"] is not None:
        free = [text_of_bytes(figures[f"{tier}_free_bytes"] or 0) for tier in ("host", "nvme")]
        memory.rows.append(["free for it", "", *free])
    return [title, memory, *_sentences(figures)]


def _sentences(figures: dict[str, Any]) -> list[str]:
    sentences = []
    if not figures["fits"]:
        reason = figures["refusal"] or f"a daemon needs --host-budget {figures['least_host_budget']} at least"
        sentences.append(f"It does not fit: {reason}")
    moved = f"A step reads at most {text_of_bytes(figures['read_bytes'])} from NVMe and writes "
    moved += text_of_bytes(figures["written_bytes"])
    if figures["nvme_seconds"] is not None:
        moved += f", which takes the disks here {text_of_seconds(figures['nvme_seconds'])}, as fast as they are now"
    if figures["read_bytes"] + figures["written_bytes"] > 0:
        sentences.append(moved)
    return sentences
