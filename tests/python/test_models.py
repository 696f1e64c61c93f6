"""Models as they are, trained with tierd: the same numbers as without it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import compare
import formulas
import tierd.torch
from conftest import PART, PATIENCE, tierctl
from models import BY_NAME, CASES, Case
from reference import Plan, exact, plain
from training import trained

# A GPU has copies of the last two units still, and reads them once.
HAS_COPIES = "TIERD_GPU" in os.environ
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)
# By day AdamW trains each model in fp32 or in bf16, and sums micro-batches of it in the other format.
ODD_CASES = pytest.mark.parametrize("case", CASES[1 % PART :: PART], ids=str)
EVEN_CASES = pytest.mark.parametrize("case", CASES[::PART], ids=str)
BETAS = (0.9, 0.95)
ADAMW = partial(torch.optim.AdamW, lr=1e-3, betas=BETAS, eps=1e-6, weight_decay=0.1)


def adamw(name: str) -> formulas.Rule:
    """The rule of ADAMW."""
    return formulas.AdamW(1e-3, BETAS, 1e-6, 0.1)


def warmup(step: int) -> float:
    """A learning rate that rises over ten steps."""
    return min(1.0, (step + 1) / 10)


@EVERY_CASE
def test_sgd_in_fp32_gives_every_bit_of_plain_torch(case: Case, job: str) -> None:
    plan = Plan(case)
    sgd = partial(torch.optim.SGD, lr=0.05)
    ours, theirs = trained(plan, sgd, job), plain(plan, sgd)
    compare.assert_losses_close(ours.losses, theirs.losses, 0.0)
    compare.assert_same_bits(ours.state, theirs.state)


@ODD_CASES
def test_adamw_in_fp32_gives_the_numbers_of_plain_torch_and_every_bit_of_its_formula(case: Case, job: str) -> None:
    plan = Plan(case, max_grad_norm=1.0, schedule=warmup)
    ours, theirs, formula = trained(plan, ADAMW, job), plain(plan, ADAMW), exact(plan, adamw)
    compare.assert_losses_close(ours.losses, theirs.losses, 1e-5)
    compare.assert_close(ours.state, theirs.state, 1e-6)
    compare.assert_losses_close(ours.losses, formula.losses, 0.0)
    compare.assert_same_bits(ours.state, formula.state)


@EVEN_CASES
def test_bf16_gives_every_bit_of_a_loop_with_fp32_masters(case: Case, job: str) -> None:
    plan = Plan(case, steps=10, dtype=torch.bfloat16, max_grad_norm=1.0)
    ours, theirs = trained(plan, ADAMW, job), exact(plan, adamw)
    compare.assert_losses_close(ours.losses, theirs.losses, 0.0)
    compare.assert_same_bits(ours.state, theirs.state)


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, id=f"{case}-{name}")
        for j, (name, dtype) in enumerate({"fp32": torch.float32, "bf16": torch.bfloat16}.items())
        for i, case in enumerate(CASES)
        if (i + j) % PART == 0
    ],
)
def test_micro_batches_are_summed_in_fp32(case: Case, dtype: torch.dtype, job: str) -> None:
    plan = Plan(case, steps=3, dtype=dtype, micro_batches=3, max_grad_norm=1.0)
    ours, theirs = trained(plan, ADAMW, job), exact(plan, adamw)
    compare.assert_losses_close(ours.losses, theirs.losses, 0.0)
    compare.assert_same_bits(ours.state, theirs.state)


@pytest.mark.parametrize("name", ["twice", "branches", "gpt2"])
@pytest.mark.parametrize("options", [{}, {"nesterov": True}, {"dampening": 0.5}], ids=["plain", "nesterov", "dampened"])
def test_momentum_gives_every_bit_of_its_formula(name: str, options: dict[str, Any], job: str) -> None:
    plan = Plan(BY_NAME[name], schedule=warmup)
    ours = trained(plan, partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01, **options), job)
    theirs = exact(plan, lambda name: formulas.Sgd(0.05, 0.9, weight_decay=0.01, **options))
    compare.assert_same_bits(ours.state, theirs.state)


@pytest.mark.parametrize("name", ["twice", "branches", "gpt2"])
def test_adam_gives_every_bit_of_its_formula(name: str, job: str) -> None:
    plan = Plan(BY_NAME[name], max_grad_norm=1.0)
    adam = partial(torch.optim.Adam, lr=1e-3, weight_decay=0.1)
    ours = trained(plan, adam, job)
    theirs = exact(plan, lambda name: formulas.AdamW(1e-3, weight_decay=0.1, decoupled=False))
    compare.assert_same_bits(ours.state, theirs.state)


@pytest.mark.parametrize("name", ["twice", "branches", "bert"])
def test_groups_have_their_own_rates_and_decay(name: str, job: str) -> None:
    """Biases and norms do not decay, as trainers have it."""
    plan = Plan(BY_NAME[name], max_grad_norm=1.0, schedule=warmup)

    def grouped(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        every = list(parameters)
        matrices = {"params": [p for p in every if p.ndim > 1]}
        others = {"params": [p for p in every if p.ndim <= 1], "weight_decay": 0.0, "lr": 3e-3}
        groups: list[dict[str, Any]] = [matrices, others]
        return torch.optim.AdamW(groups, lr=1e-3, betas=BETAS, eps=1e-6, weight_decay=0.1)

    shapes = {name: parameter.ndim for name, parameter in plan.make_model().named_parameters()}

    def rule(name: str) -> formulas.Rule:
        return adamw(name) if shapes[name] > 1 else formulas.AdamW(3e-3, BETAS, 1e-6, 0.0)

    ours, theirs = trained(plan, grouped, job), exact(plan, rule)
    compare.assert_same_bits(ours.state, theirs.state)


# ---- Units that leave memory


def evict(model: nn.Module) -> None:
    """Has all units leave memory, when the daemon has done with those that it moves or updates."""
    job = tierd.torch.job_of(model)
    deadline = time.monotonic() + PATIENCE
    while True:
        tierctl("evict", job.name)
        if tierd.torch.summary(model).resident_units == 0:
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


@dataclass(frozen=True)
class Evicting(Plan):
    """One whose units have all left memory when it goes backward."""

    def losses(self, model: nn.Module, step: int) -> Iterable[torch.Tensor]:
        for loss in super().losses(model, step):
            evict(model)
            yield loss
            assert HAS_COPIES or tierd.torch.summary(model).gather_misses > 0


@EVERY_CASE
def test_units_that_are_evicted_between_forward_and_backward_change_no_bit(case: Case, job: str) -> None:
    sgd = partial(torch.optim.SGD, lr=0.05)
    ours, theirs = trained(Evicting(case, steps=3), sgd, job), plain(Plan(case, steps=3), sgd)
    compare.assert_losses_close(ours.losses, theirs.losses, 0.0)
    compare.assert_same_bits(ours.state, theirs.state)


class Crowded(Plan):
    """Two of its six units find room at once: forward ends with two of them, and backward reads the others again."""

    def losses(self, model: nn.Module, step: int) -> Iterable[torch.Tensor]:
        for loss in super().losses(model, step):
            summary = tierd.torch.summary(model)
            assert summary.resident_units <= 2 < summary.units == 6
            yield loss
            read = tierd.torch.summary(model).gather_read_bytes
            assert read >= (2 if HAS_COPIES else 4) * summary.unit_bytes / 6


def wide() -> nn.Module:
    return nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.Tanh()) for _ in range(6)])


WIDE = Case(
    "wide",
    build=wide,
    batch=lambda generator, step: {"x": torch.randn(2, 1024, generator=generator)},
    loss=lambda model, batch: model(batch["x"]).square().mean(),
)


def test_an_arena_for_two_units_changes_no_bit(job: str) -> None:
    sgd = partial(torch.optim.SGD, lr=0.05)
    ours = trained(Crowded(WIDE, steps=3, micro_batches=2), sgd, job, host_budget=26 << 20, gradient_bytes=1)
    theirs = plain(Plan(WIDE, steps=3, micro_batches=2), sgd)
    compare.assert_losses_close(ours.losses, theirs.losses, 0.0)
    compare.assert_same_bits(ours.state, theirs.state)


# ---- What is frozen for some steps


@dataclass(frozen=True)
class Thawing(Plan):
    """One that freezes a module, and a bias alone, for some steps."""

    def losses(self, model: nn.Module, step: int) -> Iterable[torch.Tensor]:
        is_trained = not 4 <= step < 9
        model.get_submodule("into").requires_grad_(is_trained)
        model.get_parameter("experts.2.0.bias").requires_grad_(is_trained)
        yield from super().losses(model, step)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_what_is_frozen_between_steps_stays_as_it_is(micro_batches: int, job: str) -> None:
    plan = Thawing(BY_NAME["branches"], steps=12, micro_batches=micro_batches, max_grad_norm=1.0)
    ours, theirs = trained(plan, ADAMW, job), exact(plan, adamw)
    compare.assert_losses_close(ours.losses, theirs.losses, 0.0)
    compare.assert_same_bits(ours.state, theirs.state)
