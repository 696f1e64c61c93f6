"""Losses that are scaled: by GradScaler of torch, and by the daemon; and those that are not finite without it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import compare
import formulas
import tierd
import tierd.torch
from conftest import Daemon
from models import BY_NAME
from reference import LossScale, Plan, exact
from tierd import _core
from training import await_early_updates, early_updates, end, initialize, update

STEPS = 20
OVERFLOWS = (4, 11)  # steps whose loss is so large that scaled gradients overflow
MakeOptimizer = Callable[..., torch.optim.Optimizer]


def make_model() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 5))


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    inputs, targets = torch.randn(8, 12, generator=generator), torch.randint(5, (8,), generator=generator)
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.cross_entropy(model(inputs).float(), targets)
    return loss * 1e36 if step in OVERFLOWS else loss


def plainly(data: Iterable[int], *objects: Any) -> Iterable[int]:
    return data


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, clips: bool, over: Callable[..., Iterable[int]] = plainly
) -> list[float]:
    """The loop of a user with autocast; the scales after each step."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    scales = []
    for step in over(range(STEPS), scheduler, scaler):
        scaler.scale(loss_of(model, step)).backward()
        if clips:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e3)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    return scales


@pytest.mark.parametrize("clips", [False, True], ids=["plain", "unscaled"])
@pytest.mark.parametrize(
    "make",
    [partial(torch.optim.SGD, lr=0.1), partial(torch.optim.RMSprop, lr=1e-3)],
    ids=["daemons", "trainers"],
)
def test_grad_scaler_gives_every_bit_of_plain_torch(make: MakeOptimizer, clips: bool, job: str) -> None:
    model, plain_model = make_model(), make_model()
    optimizer, plain_optimizer = make(model.parameters()), make(plain_model.parameters())
    initialize(model, optimizer, job)
    scales = train(model, optimizer, clips)
    assert scales == train(plain_model, plain_optimizer, clips)
    for step in OVERFLOWS:
        assert scales[step] == scales[step - 1] / 2
    assert max(scales) > 2.0**12
    compare.assert_same_bits(model, plain_model)


def test_updates_during_backward_know_the_scale_of_a_grad_scaler_that_is_kept(job: str) -> None:
    found = []
    for is_early in (False, True):
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        name = f"{is_early}-{job}"[:63]
        initialize(model, optimizer, name, early_updates=is_early, optimizer_placement=_core.PLACE_NVME)
        if is_early:
            await_early_updates(tierd.torch.job_of(model), optimizer)
        scales = train(model, optimizer, False, tierd.torch.resumable)
        assert (early_updates(name) > 0) == is_early
        found.append((scales, model.state_dict()))
        end(model, name)
    assert found[0][0] == found[1][0]
    compare.assert_same_bits(found[0][1], found[1][1])
    # Nobody has told the scale.
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    initialize(model, optimizer, job, early_updates=True)
    with pytest.raises(tierd.Error, match=r"give the scaler to resumable\(\)"):
        train(model, optimizer, False)


@pytest.mark.parametrize("clips", [False, True], ids=["plain", "unscaled"])
def test_several_optimizers_have_one_grad_scaler(clips: bool, job: str) -> None:
    models = make_model(), make_model()
    for model in models:
        parts = model[:2], model[2:]  # type: ignore[index]
        optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in parts]
        if model is models[0]:
            tierd.torch.initialize(model, optimizers, job=job, rank=0, world_size=1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
        for step in range(6):
            scaler.scale(loss_of(model, step)).backward()
            for optimizer in optimizers:
                if clips:
                    scaler.unscale_(optimizer)
            for optimizer in optimizers:
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()
        assert scaler.get_scale() == 2.0**12
    compare.assert_same_bits(*models)


def test_a_training_with_grad_scaler_goes_on_where_it_was(daemon: Daemon, job: str) -> None:
    """Also after a step that came to nothing, which the job does not count, and when the daemon has crashed."""
    plain_model = make_model()
    scales = train(plain_model, torch.optim.SGD(plain_model.parameters(), lr=0.1), False)
    found = [0.0] * STEPS
    for end_after in (OVERFLOWS[0], 8, STEPS):
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        initialize(model, optimizer, job)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
        crashes = [14] if end_after == STEPS else []
        for step in tierd.torch.resumable(range(STEPS), scheduler, scaler):
            if step in crashes:
                crashes.remove(step)
                daemon.kill()
                daemon.start()
            scaler.scale(loss_of(model, step)).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad()
            found[step] = scaler.get_scale()
            if step == end_after:
                break
        if end_after < STEPS:
            tierd.torch.close(model)
    assert found == scales
    compare.assert_same_bits(model, plain_model)


def test_the_daemon_scales_fp16_parameters_that_have_fp32_masters(job: str) -> None:
    plan = Plan(BY_NAME["tied"], dtype=torch.float16)
    theirs = exact(plan, lambda name: formulas.Sgd(0.05), LossScale(2.0**24, interval=4))
    model = plan.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    initialize(model, optimizer, job, loss_scale=2.0**24, loss_scale_interval=4)
    with pytest.raises(tierd.Error, match="scale_loss"):
        next(iter(plan.losses(model, 0))).backward()
        optimizer.step()
    optimizer.zero_grad()
    losses, skipped = [], 0
    for step in range(plan.steps):
        for loss in plan.losses(model, step):
            losses.append(float(loss.detach()))
            tierd.torch.scale_loss(loss).backward()
        optimizer.step()
        optimizer.zero_grad()
        result = tierd.torch.job_of(model).finish()
        assert result is not None
        skipped += result["is_skipped"]
    assert 0 < skipped < plan.steps - 4
    compare.assert_losses_close(losses, theirs.losses, 0.0)
    compare.assert_same_bits(model, theirs.state)


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.RMSprop], ids=["daemons", "trainers"])
def test_a_loss_that_is_not_finite_is_reported_and_changes_nothing(make: MakeOptimizer, job: str) -> None:
    model, plain_model = make_model(), make_model()
    optimizer, plain_optimizer = make(model.parameters(), lr=1e-2), make(plain_model.parameters(), lr=1e-2)
    initialize(model, optimizer, job)
    (loss_of(model, 0) * float("nan")).backward()
    optimizer.step()
    with pytest.raises(tierd.Error, match=r"a NaN or an infinity: nothing was updated.*set_detect_anomaly") as raised:
        tierd.torch.job_of(model).finish()
    assert raised.value.errno == errno.EDOM
    for each, steps in ((model, optimizer), (plain_model, plain_optimizer)):
        loss_of(each, 1).backward()
        steps.step()
    compare.assert_close(model, plain_model, 0.0 if make is torch.optim.RMSprop else 1e-6)


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.RMSprop], ids=["daemons", "trainers"])
def test_a_step_that_has_failed_is_told_by_the_next_forward(make: MakeOptimizer, job: str) -> None:
    model = make_model()
    optimizer = make(model.parameters(), lr=1e-2)
    initialize(model, optimizer, job)
    # The numbers of steps that were given up, or are forgotten, count as well.
    loss_of(model, 0).backward()
    optimizer.zero_grad()
    loss_of(model, 0).backward()
    optimizer.step()
    for look in (lambda: loss_of(model, 1), lambda: next(model.parameters()).sum(), model.state_dict):
        (loss_of(model, 0) * float("nan")).backward()
        optimizer.step()
        with pytest.raises(tierd.Error, match="a NaN or an infinity") as raised:
            look()
        assert raised.value.errno == errno.EDOM
        assert tierd.torch.job_of(model).core.leases() == 0
        # It is told once, and the job is at the step before.
        loss_of(model, 1)
    (loss_of(model, 0) * float("nan")).backward()
    optimizer.step()
    with pytest.raises(tierd.Error, match="a NaN or an infinity"):
        tierd.torch.close(model)


def test_accelerate_steps_through_its_scaler(job: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerate.Accelerator(cpu=True)
    model, plain_model = make_model(), make_model()
    for each in (model, plain_model):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        if each is model:
            initialize(model, optimizer, job)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
        wrapped = accelerate.optimizer.AcceleratedOptimizer(optimizer, device_placement=False, scaler=scaler)
        for step in range(6):
            update(scaler.scale(loss_of(each, step)), wrapped)
        assert scaler.get_scale() == 2.0**11
    compare.assert_same_bits(model, plain_model)


def test_a_job_without_a_loss_scale_says_so(job: str) -> None:
    model = make_model()
    initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job)
    with pytest.raises(tierd.Error, match="no loss scale"):
        tierd.torch.scale_loss(loss_of(model, 0))
