"""`summary()`: what a model's job has in memory and on NVMe, and what its last steps have waited for and moved."""

from __future__ import annotations

import time
from typing import Any

from torch import nn

from tierd.control import ask
from tierd.report import Report, Table, text_of_bytes, text_of_seconds
from tierd.torch.initialize import job_of
from tierd.torch.job import TorchJob

# Figures of the steps since the last summary: the name here, that in struct tierd_statistics, and a text.
_WAITS = (
    ("gather_wait_seconds", "gather_wait_ns", "waited for gathers"),
    ("gradient_wait_seconds", "gradient_wait_ns", "waited for gradient buffers"),
    ("step_wait_seconds", "step_wait_ns", "waited in step()"),
    ("update_seconds", "job_step_ns", "updated, beside the trainer"),
)
_COUNTS = (
    ("gathers", "gathers", "gathers"),
    ("gather_misses", "gather_misses", "gathers that asked the daemon"),
    ("pushes", "pushes", "pushes"),
)
_MOVED = (
    ("gather_read_bytes", "job_gather_read_bytes", "read for gathers"),
    ("update_read_bytes", "job_update_read_bytes", "read for updates"),
    ("update_written_bytes", "job_update_written_bytes", "written by updates"),
    ("gradient_read_bytes", "job_gradient_read_bytes", "read of gradient sums"),
    ("gradient_written_bytes", "job_gradient_written_bytes", "written of gradient sums"),
)


def summary(model: nn.Module | None = None) -> Report:
    """What the job of a model has now, and what has happened since its last summary, or since `initialize()`.

    Waits for no step. model: None: that of the job that was initialized last.

    Returns:
        A Report, which prints as a text, is tables in Jupyter, and has its figures as attributes and items:
        name, status, stage, world_size, optimizer, step; durable_step: the last one that survives a crash, or None.
        units, unit_bytes; resident_units, resident_bytes: those whose parameters are in host memory; leased_units: those
            that somebody looks at.
        host_bytes: memory that the daemon has for the job, all ranks together; cache_bytes: of it what goes when others
            need it; nvme_bytes.
        rank_parameter_bytes, rank_gradient_bytes, rank_optimizer_bytes: of each rank by the formulas of ZeRO.
        steps: that were applied since, in so many seconds; of this rank gathers, gather_misses (those that had to ask the
            daemon), pushes, gather_wait_seconds, gradient_wait_seconds, step_wait_seconds; of the job update_seconds, and
            bytes of NVMe: gather_read_bytes, update_read_bytes, update_written_bytes, gradient_read_bytes,
            gradient_written_bytes.

    Raises:
        tierd.Error: there is no job, or its daemon does not answer.
    """
    job = job_of(model)
    figures = _standing(job) | _since(job)
    return Report(figures, [_title(figures), _memory(figures), _steps(figures)])


def _standing(job: TorchJob) -> dict[str, Any]:
    whose = (job.name, "--user", str(job.owner))
    there = ask("jobs", *whose, socket=job.socket)
    units = ask("units", *whose, socket=job.socket)
    resident = [unit for unit in units if unit["state"] == "resident"]
    same = ("name", "status", "stage", "world_size", "optimizer", "step")
    return {
        **{name: there[name] for name in same},
        "durable_step": there.get("durable_step"),
        "units": len(units),
        "unit_bytes": sum(unit["bytes"] for unit in units),
        "resident_units": len(resident),
        "resident_bytes": sum(unit["bytes"] for unit in resident),
        "leased_units": sum(unit["leases"] > 0 for unit in units),
        **{name: there[name] for name in ("host_bytes", "cache_bytes", "nvme_bytes")},
    }


def _since(job: TorchJob) -> dict[str, Any]:
    now, (before, start) = job.core.statistics(), job.seen
    job.seen = now, time.monotonic()
    # With a daemon that was started again this rank's counters begin anew.
    passed = {name: count - before[name] if count >= before[name] else count for name, count in now.items()}
    return {
        **{f"rank_{kind}_bytes": now[f"logical_{kind}_bytes"] for kind in ("parameter", "gradient", "optimizer")},
        "steps": passed["job_steps"],
        "seconds": job.seen[1] - start,
        **{name: passed[field] / 1e9 for name, field, _ in _WAITS},
        **{name: passed[field] for name, field, _ in (*_COUNTS, *_MOVED)},
    }


# ---- As texts


def _title(figures: dict[str, Any]) -> str:
    ranks = f"{figures['world_size']} rank{'s' if figures['world_size'] > 1 else ''}"
    durable = "none" if figures["durable_step"] is None else figures["durable_step"]
    return (
        f"Job {figures['name']} at step {figures['step']} (durable: {durable}), {figures['status']}; "
        f"{ranks} of stage {figures['stage']}, {figures['optimizer']}"
    )


def _memory(figures: dict[str, Any]) -> Table:
    table = Table(["", "bytes", "units"])
    table.rows += [
        ["parameters", text_of_bytes(figures["unit_bytes"]), str(figures["units"])],
        ["of them resident", text_of_bytes(figures["resident_bytes"]), str(figures["resident_units"])],
        ["of them looked at", "", str(figures["leased_units"])],
        ["host memory", text_of_bytes(figures["host_bytes"]), ""],
        ["of it caches", text_of_bytes(figures["cache_bytes"]), ""],
        ["NVMe", text_of_bytes(figures["nvme_bytes"]), ""],
    ]
    for kind, name in (("parameter", "parameters"), ("gradient", "gradients"), ("optimizer", "optimizer")):
        table.rows.append([f"each rank's {name}, by ZeRO", text_of_bytes(figures[f"rank_{kind}_bytes"]), ""])
    return table


def _steps(figures: dict[str, Any]) -> Table:
    steps = figures["steps"]
    table = Table(["since the last summary", f"{steps} step{'' if steps == 1 else 's'}", "a step"])

    def add(text: str, value: float, write: Any) -> None:
        table.rows.append([text, write(value), write(value / steps) if steps else ""])

    add("time", figures["seconds"], text_of_seconds)
    for name, _, text in _WAITS:
        add(text, figures[name], text_of_seconds)
    for name, _, text in _COUNTS:
        add(text, figures[name], lambda count: f"{count:.6g}")
    for name, _, text in _MOVED:
        add(text, figures[name], text_of_bytes)
    return table
