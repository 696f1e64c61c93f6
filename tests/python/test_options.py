"""What a script may say otherwise when it goes on with a job."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import compare
import tierd.torch
from conftest import tierctl
from forked import Child, start_ranks
from tierd import Error, _core
from tierd.torch.ranks import from_environment
from tierd.torch.units import choose, room_for_gradients
from training import await_early_updates, early_updates, update


def step(job: str, rate: float, most: float) -> torch.Tensor:
    """The weight after a step whose gradient is (3, 4)."""
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    tierd.torch.initialize(model, optimizer, job=job, max_grad_norm=most)
    model(torch.tensor([3.0, 4.0])).sum().backward()
    optimizer.step()
    weight: torch.Tensor = model.state_dict()["weight"]
    tierd.torch.close(model)
    return weight


def test_a_job_goes_on_with_another_learning_rate_and_another_clipping() -> None:
    assert torch.allclose(step("rates", 0.5, 0.0), torch.tensor([[-1.5, -2.0]]))
    assert torch.allclose(step("rates", 0.1, 0.0), torch.tensor([[-1.8, -2.4]]))
    assert torch.allclose(step("rates", 1.0, 1.0), torch.tensor([[-2.4, -3.2]]), atol=1e-5)


class Words(nn.Module):
    """An embedding, blocks, and a norm whose gradients come first and last."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3000, 64)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4))
        self.norm = nn.LayerNorm(64)
        self.first = nn.Parameter(torch.zeros(64))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words) + self.first
        for block in self.blocks:
            x = x + block(x)
        normed: torch.Tensor = self.norm(x)
        return normed


def promised(job: str) -> int:
    listed = tierctl("--json", "jobs")
    return next(int(entry["promised_bytes"]) for entry in json.loads(listed) if entry["name"] == job)


def test_gradients_of_an_embedding_and_of_blocks_share_a_room() -> None:
    units = ["Sequential", "Embedding"]
    results, sizes = [], []
    options: list[dict[str, Any]] = [{"gradient_bytes": 1}, {}, {"gradient_buffers": 4}, {"gradient_bytes": 1 << 21}]
    for number, option in enumerate(options):
        torch.manual_seed(3)
        model = Words()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        tierd.torch.initialize(model, optimizer, job=f"room{number}", units=units, **option)
        for step in range(3):
            for micro_batch in range(2):
                words = torch.arange(32) * (step + 7) * (micro_batch + 1) % 3000
                model(words).square().sum().backward()
            optimizer.step()
        results.append({name: value.clone() for name, value in model.state_dict().items()})
        sizes.append(promised(f"room{number}"))
        tierd.torch.close(model)
    for result in results[1:]:
        assert all(torch.equal(value, results[0][name]) for name, value in result.items())
    # The largest unit: 750 KiB; three blocks of 16 KiB and a bias; and a buffer of the largest besides four.
    largest, block = 3000 * 64 * 4, 64 * 64 * 4 + 1024
    assert sizes[1] - sizes[0] == -(-(largest + 3 * block) // 4096) * 4096 - -(-largest // 4096) * 4096
    assert sizes[2] - sizes[0] > 3 * block
    assert sizes[3] - sizes[0] == (1 << 21) - -(-largest // 4096) * 4096
    with pytest.raises(tierd.Error, match=r"gradient_bytes is \d+; \d+ are allowed at most"):
        last = Words()
        tierd.torch.initialize(last, torch.optim.SGD(last.parameters(), lr=0.1), job="room", gradient_bytes=1 << 60)


class Crossing(nn.Module):
    """Blocks whose gradients come by turns: none has all of its own before the others have some."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in range(2):
            for block in self.blocks:
                x = torch.tanh(block[layer](x))  # type: ignore[index]
        return x


def test_gradients_that_come_by_turns_have_room_for_fewer_units() -> None:
    results = []
    rooms: list[dict[str, Any] | None] = [None, {"gradient_buffers": 2}, {"gradient_bytes": 1}]
    for options in rooms:
        torch.manual_seed(3)
        model = Crossing()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if options is not None:
            tierd.torch.initialize(model, optimizer, job=f"turns-{next(iter(options))}", **options)
        for step in range(3):
            update(model(torch.linspace(-1, step, 128).view(2, 64)).square().sum(), optimizer)
        results.append(model.state_dict())
        if options is not None:
            tierd.torch.close(model)
    for result in results[1:]:
        assert all(torch.equal(value, results[0][name]) for name, value in result.items())


class Scaled(torch.autograd.Function):
    """Has a gradient that bfloat16 has not."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale = scale
        return x.float()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.scale, None


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.zeros(300, dtype=torch.bfloat16))
        self.other = nn.Parameter(torch.zeros(2, 3, dtype=torch.bfloat16))
        self.norm = nn.Parameter(torch.ones(3))

    def forward(self, scale: float) -> torch.Tensor:
        total: torch.Tensor = (
            Scaled.apply(self.one, scale).sum() + Scaled.apply(self.other, scale).sum() + self.norm.sum()
        )
        return total


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this PyTorch has no Tensor.grad_dtype")
@pytest.mark.parametrize("of_all", [False, True])
def test_gradients_of_bfloat16_parameters_are_not_rounded_in_float32(of_all: bool) -> None:
    model = Weights()
    if not of_all:
        model.one.grad_dtype = torch.float32
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    job = f"wide{of_all}"
    tierd.torch.initialize(model, optimizer, job=job, gradient_dtype=torch.float32 if of_all else None)
    for scale in (1 + 2**-9, -1.0):
        model(scale).backward()
    optimizer.step()
    state = model.state_dict()
    assert torch.equal(state["one"], torch.full((300,), -(2.0**-9), dtype=torch.bfloat16))
    assert torch.equal(state["other"], torch.full((2, 3), -(2.0**-9) if of_all else 0.0, dtype=torch.bfloat16))
    assert torch.equal(state["norm"], torch.full((3,), -1.0))


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this torch has no Tensor.grad_dtype")
def test_wide_gradients_have_room() -> None:
    model = Weights()
    plans = choose(model)
    narrow = room_for_gradients(plans)
    for plan in plans:
        plan.gradient_dtype = torch.float32
    # Those of two tensors in bfloat16, of 300 and of 6 elements, are twice as large.
    assert room_for_gradients(plans) - narrow == 4 * (512 + 256) * 2


def test_a_tied_weight_is_gathered_around_all_of_its_modules() -> None:
    model = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 3), nn.Linear(3, 4, bias=False))
    model[2].weight = model[0].weight
    plan = next(plan for plan in choose(model) if plan.name == "0.weight")
    assert plan.entries[0].names == ["0.weight", "2.weight"]
    assert all(any(module is own for own in plan.modules) for module in (model[0], model[2]))


def test_gradients_of_another_type_are_refused() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(tierd.Error, match=r"gradient_dtype is torch\.float16: it is torch\.float32, or None"):
        tierd.torch.initialize(model, optimizer, job="half", gradient_dtype=torch.float16)
    if not hasattr(torch.Tensor, "grad_dtype"):
        with pytest.raises(tierd.Error, match=r"needs Tensor\.grad_dtype, which PyTorch"):
            tierd.torch.initialize(model, optimizer, job="half", gradient_dtype=torch.float32)


def test_groups_that_an_optimizer_has_loaded_are_those_that_are_kept() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job="loaded")
    optimizer.load_state_dict(optimizer.state_dict())
    for batch in tierd.torch.resumable([torch.ones(1, 2)]):
        optimizer.param_groups[0]["lr"] = 0.5
        model(batch).sum().backward()
        optimizer.step()
    assert tierd.torch.state["tierd.position"]["groups"][0][0]["lr"] == 0.5


def test_a_step_without_gradients_is_refused() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job="refused")
    with pytest.raises(tierd.Error, match=r"call loss\.backward\(\) before it"):
        optimizer.step()
    model(torch.ones(2)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nn.Sequential(nn.Embedding(4, 2, max_norm=1.0)), "0 has max_norm"),
        (nn.Sequential(nn.Embedding(4, 2, sparse=True)), "0 has sparse gradients"),
        (nn.Linear(2, 2, device="meta"), "weight is on meta"),
        (nn.Linear(2, 2, dtype=torch.float64), "weight is torch.float64"),
        (nn.Linear(2, 2, dtype=torch.complex64), "weight is torch.complex64"),
        (torch.jit.script(nn.Linear(2, 2)), "is a ScriptModule"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_refused_with_a_sentence(model: nn.Module, sentence: str) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(tierd.Error, match=sentence):
        tierd.torch.initialize(model, optimizer, job="bad")


def test_a_graph_of_an_earlier_step_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job="graphs")
    old = model(torch.ones(1, 4)).sum()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"has been modified by optimizer\.step"):
        old.backward()


def test_a_weight_that_is_kept_holds_the_step_up_and_is_named() -> None:
    first = nn.Linear(4, 4)
    model = nn.Sequential(nn.Sequential(first, nn.Tanh()), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job="kept")
    kept = first.weight.detach()[:3]
    model(torch.ones(1, 4)).sum().backward()
    sentence = r"shares memory with weight 0\.0\.weight \(a tensor of shape \[3, 4\]\) of unit 0, .* \(\.clone\(\)\), or .*\(del\)"
    with pytest.raises(tierd.Error, match=sentence):
        optimizer.step()
    with pytest.raises(tierd.Error, match=sentence):
        optimizer.zero_grad()
    values = model.state_dict()
    with pytest.raises(tierd.Error, match=r"values cannot be loaded between"):
        model.load_state_dict(values)
    value = kept.clone()
    del kept
    optimizer.step()
    assert not torch.equal(first.weight.detach().clone()[:3], value)
    kept = first.weight.detach()
    with pytest.raises(tierd.Error, match=r"shares memory with weight 0\.0\.weight .* of unit 0"):
        model.load_state_dict(values)
    del kept
    model.load_state_dict(values)


def test_all_that_holds_a_step_up_is_named() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job="all-kept")
    kept = [model.get_parameter(name).detach() for name in ("0.0.weight", "0.0.bias", "2.0.bias")]
    model(torch.ones(1, 4)).sum().backward()
    sentence = r"0\.0\.weight .* of unit 0, weight 0\.0\.bias .* of unit 0, weight 2\.0\.bias .* of unit 2, which"
    with pytest.raises(tierd.Error, match=sentence):
        optimizer.step()
    kept.clear()
    optimizer.step()


def early(job: str, *, is_early: bool) -> dict[str, torch.Tensor]:
    """Values after steps of blocks whose state is on NVMe."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job=job, early_updates=is_early, optimizer_placement=_core.PLACE_NVME)
    if is_early:
        await_early_updates(tierd.torch.job_of(model), optimizer)
    for _ in range(3):
        model(torch.ones(64)).sum().backward()
        optimizer.step()
    values = model.state_dict()
    if is_early:
        model(torch.ones(64)).sum().backward()
        optimizer.param_groups[0]["lr"] = 0.2
        with pytest.raises(Error, match="early_updates"):
            optimizer.step()
        # A step that keeps the promise still comes through.
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
        model(torch.ones(64)).sum().backward()
        with pytest.raises(Error, match="second part of gradients"):
            model(torch.ones(64)).sum().backward()
        optimizer.zero_grad()
        model(torch.ones(64)).sum().backward()
        optimizer.step()
        assert tierd.torch.job_of(model).core.state()["step"] == 6
    tierd.torch.close(model)
    return values


def test_a_script_that_promises_its_rates_has_updates_during_backward_and_the_same_bits() -> None:
    late, soon = early("late", is_early=False), early("soon", is_early=True)
    assert all(torch.equal(value, late[name]) for name, value in soon.items())
    assert early_updates("soon") > 0
    assert early_updates("late") == 0


def early_rank(folder: Path, job: str, is_early: bool, lost_at: int) -> None:
    """What one of two ranks does. The second one is lost in the backward of a step, before its last gradient."""
    rank = from_environment()[0]
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job=job, early_updates=is_early, optimizer_placement=_core.PLACE_NVME)
    if is_early:
        await_early_updates(tierd.torch.job_of(model), optimizer)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 6)
    for step in tierd.torch.resumable(range(6), scheduler):
        if rank == 1 and step == lost_at:
            model[0].register_full_backward_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        model(torch.full((64,), 1.0 + step - rank)).sum().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    torch.save(model.state_dict(), folder / f"{job}-{rank}")


def test_ranks_that_are_updated_during_backward_have_the_same_bits_also_when_one_is_lost(tmp_path: Path) -> None:
    for rank in start_ranks(2, early_rank, tmp_path, "late-ranks", False, -1):
        rank.result()
    first, second = start_ranks(2, early_rank, tmp_path, "soon-ranks", True, 3)
    second.assert_killed()
    # It is started again alone, and the other one goes back.
    Child(early_rank, tmp_path, "soon-ranks", True, -1, RANK="1", WORLD_SIZE="2").result()
    first.result()
    for name in ("0", "1"):
        found, expected = (torch.load(tmp_path / f"{job}-{name}") for job in ("soon-ranks", "late-ranks"))
        compare.assert_same_bits(found, expected)
    assert early_updates("soon-ranks") > 0


def test_a_step_that_is_rolled_back_promises_nothing() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    tierd.torch.initialize(model, optimizer, job="rolled-back", early_updates=True, snapshots=1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 4)
    steps = []
    for step in tierd.torch.resumable(range(4), scheduler):
        steps.append(step)
        model(torch.ones(8)).sum().backward()
        if steps == [0, 1, 2]:
            tierd.torch.rollback("first")
            continue
        optimizer.step()
        if step == 0:
            tierd.torch.snapshot("first")
        scheduler.step()
        optimizer.zero_grad()
    assert steps == [0, 1, 2, 1, 2, 3]


def test_an_optimizer_in_the_trainer_updates_nothing_early() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(Error, match="Adagrad runs in the trainer"):
        tierd.torch.initialize(model, torch.optim.Adagrad(model.parameters()), job="early", early_updates=True)
