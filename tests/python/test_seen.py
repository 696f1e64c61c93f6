"""What a job takes and does is seen: its plan is what it then has, its summary adds up, a profiler shows its ranges."""

from __future__ import annotations

import json
import re
import threading
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import nn

import tierd.torch as tierd
import training
from conftest import tierctl
from tierd import Error, _core
from tierd.report import Report, Table, text_of_bytes
from training import update


class Model(nn.Module):
    """Of two formats, with a tied weight and a frozen one of integers."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(3))
        self.norm = nn.BatchNorm1d(width)
        self.codes = nn.Parameter(torch.arange(6, dtype=torch.int8).view(2, 3), requires_grad=False)
        self.head = nn.Linear(width, 100, bias=False)
        self.head.weight = self.embedding.weight
        self.blocks.bfloat16()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens).bfloat16()
        for block in self.blocks:
            values = block(values)
        result: torch.Tensor = self.head(self.norm(values.float()))
        return result


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    one, *others = (parameter for parameter in model.parameters() if parameter.requires_grad)
    groups: list[dict[str, Any]] = [{"params": [one], "weight_decay": 0.0}, {"params": others}]
    return torch.optim.AdamW(groups, lr=1e-3)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def grouped(model: nn.Module) -> torch.optim.Optimizer:
    """With groups that have nothing, as trainers make them."""
    groups: list[dict[str, Any]] = [{"params": list(model.parameters())}, *({"params": []} for _ in range(1000))]
    return torch.optim.AdamW(groups, lr=0.5)


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    update(model(torch.arange(8)).sum(), optimizer)


@pytest.fixture
def name(job: str) -> str:
    return job


def found(job: str) -> dict[str, Any]:
    said = tierctl("jobs", "--json")
    return next(there for there in json.loads(said) if there["name"] == job)


AUTO: dict[str, Any] = {"parameter_placement": _core.PLACE_AUTO, "optimizer_placement": _core.PLACE_AUTO}
HOST: dict[str, Any] = {"parameter_placement": _core.PLACE_HOST, "optimizer_placement": _core.PLACE_HOST}


@pytest.mark.parametrize(
    ("stage", "make_optimizer", "options"),
    [
        (3, adamw, {}),
        (3, sgd, {"units": lambda name, module: name == "blocks"}),
        (2, momentum, {"snapshots": 2}),
        (1, adamw, HOST | {"gradient_buffers": 2}),
        (0, sgd, HOST | {"durability": _core.DURABILITY_NONE}),
        (3, adamw, HOST | {"pushed_once": True}),
        (3, grouped, HOST),
        (3, adamw, {"gradient_dtype": torch.float32, "random_states": False, "early_updates": True}),
        (3, adamw, AUTO),
        # The state has no room in it, and goes to NVMe.
        (3, adamw, AUTO | {"host_budget": "12M"}),
    ],
)
def test_a_plan_is_what_the_job_then_has(name: str, stage: int, make_optimizer: Any, options: dict[str, Any]) -> None:
    model = Model()
    optimizer = make_optimizer(model)
    plan = tierd.plan(model, optimizer, stage=stage, **options)
    training.initialize(model, optimizer, name, stage=stage, **options)
    there = found(name)
    assert (plan.host_bytes, plan.nvme_bytes) == (there["promised_bytes"], there["nvme_bytes"])
    assert (plan.parameters_on, plan.optimizer_on) == (there["parameter_placement"], there["optimizer_placement"])
    assert (plan.units, plan.optimizer.replace("momentum", "sgd")) == (there["units"], there["optimizer"])
    assert plan.fits
    assert plan.refusal is None
    # Where they lie now does not matter.
    assert tierd.plan(model, optimizer, stage=stage, **options).host_bytes == plan.host_bytes
    parts = ("parameter", "gradient", "optimizer", "buffer", "other")
    assert plan.host_bytes == sum(plan[f"host_{part}_bytes"] for part in parts)
    # The job's are of whole shards, which are padded.
    statistics = tierd.job_of().core.statistics()
    for kind in ("parameter", "gradient", "optimizer"):
        assert plan[f"rank_{kind}_bytes"] == pytest.approx(statistics[f"logical_{kind}_bytes"], rel=0.05)


@pytest.mark.parametrize("stage", [1, 3])
def test_a_plan_of_two_ranks_is_what_their_job_then_has(name: str, stage: int) -> None:
    models = Model(), Model()
    plan = tierd.plan(models[0], sgd(models[0]), world_size=2, stage=stage)

    def join(rank: int) -> None:
        training.initialize(models[rank], sgd(models[rank]), name, rank=rank, world_size=2, stage=stage)

    other = threading.Thread(target=join, args=(1,))
    other.start()
    join(0)
    other.join()
    there = found(name)
    assert (plan.host_bytes, plan.nvme_bytes) == (there["promised_bytes"], there["nvme_bytes"])
    assert (plan.world_size, tierd.summary().world_size) == (2, 2)
    # Both at once: each waits for the other at the end.
    leaving = threading.Thread(target=tierd.close, args=(models[1],))
    leaving.start()
    tierd.close(models[0])
    leaving.join()


def test_a_plan_of_several_ranks_says_what_they_move_and_how_long_that_takes() -> None:
    with torch.device("meta"):
        model = Model()
    one, four = tierd.plan(model, world_size=1), tierd.plan(model, world_size=4, micro_batches=3)
    assert four.rank_parameter_bytes < one.rank_parameter_bytes
    assert four.host_bytes > one.host_bytes
    assert four.read_bytes > one.read_bytes > 0
    assert one.nvme_seconds == pytest.approx(
        one.read_bytes / one.read_bytes_per_second + one.written_bytes / one.written_bytes_per_second
    )
    assert "4 ranks of stage 3" in str(four)
    assert "which takes the disks here" in str(four)


@pytest.mark.parametrize("budget", ["host_budget", "nvme_budget"])
def test_a_job_does_not_fit_a_budget_of_its_own_that_its_plan_does_not_fit(name: str, budget: str) -> None:
    model = Model()
    optimizer = adamw(model)
    options: dict[str, Any] = {budget: "1M"}
    plan = tierd.plan(model, optimizer, **options)
    assert not plan.fits
    with pytest.raises(Error, match=re.escape(plan.refusal)) as raised:
        training.initialize(model, optimizer, name, **options)
    assert "It does not fit: " in raised.value.__notes__[0]
    assert budget in plan.refusal


def test_a_plan_leaves_the_model_as_it_is() -> None:
    model = Model()
    plans = [tierd.plan(model, gradient_dtype=dtype) for dtype in (None, torch.float32, None)]
    assert plans[0].host_bytes == plans[2].host_bytes < plans[1].host_bytes
    assert {each.grad_dtype for each in model.blocks.parameters()} == {torch.bfloat16}


def test_a_plan_of_what_cannot_be_says_so() -> None:
    with pytest.raises(Error, match="on NVMe at stage 3 alone"):
        tierd.plan(Model(), stage=1, parameter_placement=_core.PLACE_NVME)
    with pytest.raises(Error, match="world_size"):
        tierd.plan(Model(), world_size=0)


def test_without_a_daemon_the_private_one_is_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIERD_SOCKET")
    monkeypatch.setattr("tierd.daemon.find", lambda: None)
    model = Model()
    plan, small = tierd.plan(model, nvme="/data:1G"), tierd.plan(model, nvme="/data:1M")
    assert (plan.nvme_free_bytes, plan.fits, plan.parameters_on) == (1 << 30, True, "nvme")
    assert not small.fits
    assert "It does not fit: " in str(small)
    assert tierd.plan(model).parameters_on == "host"


def test_an_error_for_lack_of_room_has_the_plan(name: str) -> None:
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(20)))
    with pytest.raises(Error) as raised:
        training.initialize(model, adamw(model), name)
    notes = "\n".join(raised.value.__notes__)
    assert "83,927,040 parameters in fp32 with adamw" in notes
    assert "It does not fit: " in notes
    # What is wrong for other reasons has none.
    with pytest.raises(Error) as raised:
        training.initialize(Model(), sgd(Model()), "no name")
    assert not hasattr(raised.value, "__notes__")


def test_a_summary_has_what_the_last_steps_did(name: str) -> None:
    model = Model()
    optimizer = sgd(model)
    training.initialize(model, optimizer, name)
    for _ in range(3):
        step(model, optimizer)
    tierd.job_of().finish()
    summary = tierd.summary(model)
    assert (summary.name, summary.steps, summary.step, summary.units) == (name, 3, 3, 5)
    # What is frozen is a unit of its own, and has no gradients.
    assert summary.pushes == 3 * (summary.units - 1)
    assert summary.gathers >= 3 * summary.units
    assert summary.update_seconds > 0
    assert summary.update_written_bytes > 0
    assert summary.resident_units <= summary.units
    assert summary.resident_bytes <= summary.unit_bytes
    assert summary.leased_units == 0
    assert summary.host_bytes > summary.unit_bytes
    assert f"Job {name} at step 3" in str(summary)
    kept = model.embedding.weight.detach()
    again = tierd.summary()
    assert (again.steps, again.pushes, again.leased_units) == (0, 0, 1)
    del kept
    tierd.close()
    # One that is never written to NVMe has no such step.
    passing = Model()
    training.initialize(passing, sgd(passing), f"{name[:50]}-passing", durability=_core.DURABILITY_NONE)
    assert tierd.summary().durable_step is None
    assert "(durable: none)" in str(tierd.summary())
    # A job that is resumed has not done in this process what it did before.
    training.end(passing, f"{name[:50]}-passing")
    training.initialize(model := Model(), sgd(model), name)
    assert (tierd.summary().steps, tierd.summary().step) == (0, 3)


class Cells(HTMLParser):
    """Those of all tables."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_a_report_is_a_text_a_table_and_its_figures() -> None:
    table = Table(["", "bytes"], [["of <this>", "1 B"], ["and", "1.00 KiB"]])
    report = Report({"bytes": 1025}, ["A & B", table])
    assert str(report) == repr(report) == "A & B\n\n              bytes\nof <this>       1 B\nand        1.00 KiB"
    html = report._repr_html_()
    assert html.startswith("<p>A &amp; B</p><table>")
    assert Cells(html).rows == [["", "bytes"], ["of <this>", "1 B"], ["and", "1.00 KiB"]]
    assert report.bytes == report["bytes"] == 1025
    with pytest.raises(AttributeError, match="there are bytes"):
        _ = report.steps
    assert [text_of_bytes(count) for count in (0, 999, 1000, 1 << 20, 3 << 40)] == [
        "0 B",
        "999 B",
        "0.98 KiB",
        "1.00 MiB",
        "3.00 TiB",
    ]


def test_a_profiler_shows_gathers_waits_pushes_and_steps(name: str) -> None:
    model = Model()
    optimizer = sgd(model)
    training.initialize(model, optimizer, name)
    step(model, optimizer)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step(model, optimizer)
        tierd.job_of().finish()
        tierctl("evict", name)
        step(model, optimizer)
    events = [event.name for event in profiler.events() if event.name.startswith("tierd.")]
    assert events.count("tierd.step") == 2
    assert "tierd.wait for the last step" in events
    for unit in ("blocks.0", "blocks.1", "blocks.2"):
        assert events.count(f"tierd.push {unit}") == 2
        assert events.count(f"tierd.gather {unit}") >= 2
        assert f"tierd.wait for a buffer of {unit}" in events
    # All units lie together on NVMe, so the first one is waited for.
    waits = [event for event in profiler.events() if event.name == "tierd.wait codes"]
    assert waits, events
    assert all(event.cpu_parent.name == "tierd.gather codes" for event in waits)
