"""Optimizers that tierd does not have run in the trainer: the bits are plain PyTorch's, and their state comes back."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import compare
import formulas
import local_rank
import tierd
import tierd.torch
from conftest import Daemon
from forked import Child, start_ranks
from formulas import away_from_zero
from models import BY_NAME
from reference import Plan, exact, plain
from training import trained, update


class Own(torch.optim.Optimizer):
    """A user's own, as nobody else has it: it looks at whole rows, counts its steps in its groups, and keeps a list."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float):
        super().__init__(parameters, {"lr": lr, "steps": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["steps"] += 1
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["sums"] = [torch.zeros_like(parameter), 0]
                state["sums"][0].add_(parameter.grad)
                state["sums"][1] += 1
                rows = state["sums"][0].reshape(parameter.shape[0], -1).norm(dim=1, keepdim=True)
                change = parameter.grad.reshape(parameter.shape[0], -1) / (rows + 1.0)
                parameter.sub_(change.view_as(parameter), alpha=group["lr"] / group["steps"])


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "rmsprop": partial(torch.optim.RMSprop, lr=1e-3, momentum=0.9, centered=True),
    "nadam": partial(torch.optim.NAdam, lr=1e-3, weight_decay=0.01),
    "adagrad": partial(torch.optim.Adagrad, lr=1e-2),
    "amsgrad": partial(torch.optim.AdamW, lr=1e-3, amsgrad=True),
    "own": partial(Own, lr=0.1),
}
if hasattr(torch.optim, "Adafactor"):
    OPTIMIZERS["adafactor"] = partial(torch.optim.Adafactor, lr=1e-2)


@pytest.mark.parametrize(("name", "stage"), [("rmsprop", 0), *((name, 3) for name in OPTIMIZERS)])
def test_what_tierd_does_not_have_gives_every_bit_of_plain_torch(name: str, stage: int, job: str) -> None:
    plan = Plan(BY_NAME["tied"], max_grad_norm=0.5, schedule=lambda step: 1.0 - step / 40)
    ours, theirs = trained(plan, OPTIMIZERS[name], job, stage=stage), plain(plan, OPTIMIZERS[name])
    compare.assert_losses_close(ours.losses, theirs.losses, 0.0)
    compare.assert_same_bits(ours.state, theirs.state)


# ---- Ranks, and what comes back


def kill(ranks: list[Child]) -> None:
    """Ends them as a crash does."""
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.communicate()


def results(ranks: list[Child]) -> set[str]:
    """The hashes that they end with."""
    return {rank.result().split()[-1] for rank in ranks}


def await_line(rank: Child, line: str) -> None:
    """Reads what a rank says until it has said that."""
    for said in rank.stdout:
        if said.strip() == line:
            return
    pytest.fail(f"no {line!r}: {rank.communicate()[1]}")


def test_two_ranks_that_are_killed_go_on_with_the_bits_of_plain_torch(job: str) -> None:
    ranks = start_ranks(2, local_rank.main, job, "two", 3, 20)
    await_line(ranks[0], "step 8")
    kill(ranks)
    ranks = start_ranks(2, local_rank.main, job, "two", 3, 20)
    assert int(ranks[0].stdout.readline().split()[1]) >= 7
    assert results(ranks) == {local_rank.plain([2] * 20, "two")}


@pytest.mark.parametrize("kind", ["own", "two"])
def test_state_goes_to_another_number_of_ranks_and_outlives_the_daemon(kind: str, daemon: Daemon, job: str) -> None:
    def crash(step: int) -> None:
        if step in crashes:
            crashes.remove(step)
            daemon.kill()
            daemon.start()

    crashes = [11]
    assert results(start_ranks(2, local_rank.main, job, kind, 0, 8)) == {local_rank.plain([2] * 8, kind)}
    assert local_rank.train(job, kind, 0, 20, 0, 1, crash) == local_rank.plain([2] * 8 + [1] * 12, kind)
    assert not crashes


# ---- What is said


def small() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    update(model(torch.ones(2, 6)).square().sum(), optimizer)


def test_where_the_optimizer_runs_is_said(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    model = small()
    optimizer = torch.optim.RMSprop(model.parameters())
    tierd.torch.initialize(model, optimizer, job=job)
    said = capfd.readouterr().err
    assert re.search(r"tierd: RMSprop runs in the trainer, on fp32 masters: up to \d\.\d+ KiB of state are kept", said)


@pytest.mark.parametrize("make", [torch.optim.RMSprop, torch.optim.Adagrad])
def test_bf16_parameters_have_fp32_masters(make: Callable[..., torch.optim.Optimizer], job: str) -> None:
    model, plain_model = small().bfloat16(), small().bfloat16()
    masters = [nn.Parameter(p.detach().float()) for p in plain_model.parameters()]
    optimizer, plain_optimizer = make(model.parameters()), make(masters)
    tierd.torch.initialize(model, optimizer, job=job)
    inputs = torch.ones(2, 6, dtype=torch.bfloat16)
    for _ in range(5):
        for each in (model, plain_model):
            each(inputs).square().sum().backward()
        optimizer.step()
        for parameter, master in zip(plain_model.parameters(), masters, strict=True):
            assert parameter.grad is not None
            master.grad, parameter.grad = parameter.grad.float(), None
        plain_optimizer.step()
        for parameter, master in zip(plain_model.parameters(), masters, strict=True):
            parameter.data.copy_(away_from_zero(master.detach()))
    compare.assert_same_bits(model, plain_model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_dict_of_plain_torch_is_gone_on_with(dtype: torch.dtype, job: str) -> None:
    model, plain_model = small().to(dtype), small().to(dtype)
    optimizer, plain_optimizer = (torch.optim.NAdam(each.parameters(), lr=1e-2) for each in (model, plain_model))
    inputs = torch.ones(2, 6, dtype=dtype)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(3):
            update(model(inputs).square().sum(), optimizer)

    train(plain_model, plain_optimizer)
    model.load_state_dict(plain_model.state_dict())
    tierd.torch.initialize(model, optimizer, job=job)
    optimizer.load_state_dict(plain_optimizer.state_dict())
    assert all(state["exp_avg"].dtype is torch.float32 for state in optimizer.state_dict()["state"].values())
    if dtype is torch.float32:
        train(model, optimizer)
        train(plain_model, plain_optimizer)
        compare.assert_same_bits(model, plain_model)


def test_what_a_job_cannot_keep_is_refused_or_said(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    class Hoarder(torch.optim.SGD):
        """Keeps far more than there is room for, in a tensor without memory of its own."""

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            super().step()
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter]["hoard"] = torch.zeros(1 << 22)

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(*[nn.Linear(1, 1) for _ in range(3)])
        return model, Hoarder(model.parameters(), lr=0.1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tierd.torch.local.KEYS", 1)
        with pytest.raises(tierd.Error, match="Hoarder keeps .* bytes of state on rank 0") as raised:
            tierd.torch.initialize(*make(), job=job)
        assert raised.value.errno == errno.ENOSPC
    for begins in (True, False):
        model, optimizer = make()
        tierd.torch.initialize(model, optimizer, job=job, optimizer_state_bytes=0)
        said = capfd.readouterr().err
        assert "the state ends with the trainer" in said
        assert ("begins anew at step 1" in said) is not begins
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        tierd.torch.close(model)
    with pytest.raises(tierd.Error, match="blob_bytes"):
        tierd.torch.initialize(*make(), job=job)


def test_state_of_another_optimizer_is_not_taken(job: str) -> None:
    model = small()
    optimizer: torch.optim.Optimizer = torch.optim.RMSprop(model.parameters())
    tierd.torch.initialize(model, optimizer, job=job, optimizer_state_bytes=1 << 20)
    step(model, optimizer)
    tierd.torch.close(model)
    model = small()
    with pytest.raises(tierd.Error, match="state is of RMSprop with 1 groups: go on with that"):
        tierd.torch.initialize(model, torch.optim.Adagrad(model.parameters()), job=job, optimizer_state_bytes=1 << 20)
    model = small()
    with pytest.raises(tierd.Error, match="optimizer"):
        tierd.torch.initialize(model, torch.optim.AdamW(model.parameters()), job=job)


def test_an_optimizer_that_fails_leaves_a_job_that_goes_on(job: str) -> None:
    class Failing(torch.optim.RMSprop):
        fails = False

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            super().step()
            if self.fails:
                raise ValueError("in the middle")

    plain_model = small()
    plain_optimizer = torch.optim.RMSprop(plain_model.parameters())
    for fails in (True, False):
        model = small()
        optimizer = Failing(model.parameters())
        tierd.torch.initialize(model, optimizer, job=job)
        step(model, optimizer)
        if fails:
            optimizer.fails = True
            with pytest.raises(ValueError, match="in the middle"):
                step(model, optimizer)
    for _ in range(2):
        step(plain_model, plain_optimizer)
    compare.assert_same_bits(model, plain_model)


def test_a_step_that_is_dropped_keeps_what_was_there(job: str) -> None:
    model, plain_model = small(), small()
    optimizer, plain_optimizer = torch.optim.RMSprop(model.parameters()), torch.optim.RMSprop(plain_model.parameters())
    tierd.torch.initialize(model, optimizer, job=job)
    model(torch.ones(2, 6)).sum().backward()
    optimizer.zero_grad()
    tierd.torch.close(model)
    model = small()
    optimizer = torch.optim.RMSprop(model.parameters())
    tierd.torch.initialize(model, optimizer, job=job)
    for each, steps in ((model, optimizer), (plain_model, plain_optimizer)):
        step(each, steps)
    compare.assert_same_bits(model, plain_model)


@pytest.mark.parametrize("kind", [torch.optim.RMSprop, torch.optim.AdamW])
def test_a_checkpoint_of_another_optimizer_is_refused_at_once(job: str, kind: type[torch.optim.Optimizer]) -> None:
    model, plain_model = small(), small()
    optimizer, plain_optimizer = kind(model.parameters()), kind(plain_model.parameters())  # type: ignore[call-arg]
    other_model = small()
    other = torch.optim.SGD(other_model.parameters(), lr=0.5, momentum=0.9)
    step(other_model, other)
    tierd.torch.initialize(model, optimizer, job=job)
    step(model, optimizer)
    step(plain_model, plain_optimizer)
    groups = optimizer.param_groups
    for wrong in (other.state_dict(), {**other.state_dict(), "state": {}}):
        with pytest.raises(tierd.Error, match=rf"{kind.__name__}.*(of another optimizer|needs)"):
            optimizer.load_state_dict(wrong)
    # It is as it was, and goes on with what it keeps itself.
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups is groups
    step(model, optimizer)
    step(plain_model, plain_optimizer)
    compare.assert_close(model, plain_model, 1e-6)


def test_what_nobody_can_do_is_refused(job: str) -> None:
    model = small()
    with pytest.raises(tierd.Error, match="LBFGS calls its closure several times"):
        tierd.torch.initialize(model, torch.optim.LBFGS(model.parameters()), job=job)
    with pytest.raises(tierd.Error, match="no parameter of RMSprop is one of this model's"):
        tierd.torch.initialize(model, torch.optim.RMSprop(small().parameters()), job=job)
    wrapped = torch.optim.RMSprop(model.parameters())
    wrapped.inner = torch.optim.SGD(model.parameters(), lr=0.1)  # type: ignore[attr-defined]
    with pytest.raises(tierd.Error, match=r"RMSprop steps through another optimizer \(inner, SGD\)"):
        tierd.torch.initialize(model, wrapped, job=job)


# ---- Optimizers that tierd has


class Lion(torch.optim.Optimizer):
    """Lion as users have it, since it is in no torch."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, betas: tuple[float, float], weight_decay: float):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for parameter in group["params"]:
                parameter.mul_(1 - lr * self.decay(group))
                moments = self.state[parameter].setdefault("exp_avg", torch.zeros_like(parameter))
                parameter.sub_(lr * (moments * beta1 + parameter.grad * (1 - beta1)).sign())
                moments.mul_(beta2).add_(parameter.grad, alpha=1 - beta2)

    def decay(self, group: dict[str, Any]) -> float:
        decay: float = group["weight_decay"]
        return decay


def test_lion_is_translated_and_gives_every_bit_of_its_formula(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    plan = Plan(BY_NAME["tied"], max_grad_norm=0.5)
    ours = trained(plan, lambda parameters: Lion(parameters, 1e-3, (0.9, 0.98), 0.1), job)
    theirs = exact(plan, lambda name: formulas.Lion(1e-3, (0.9, 0.98), 0.1))
    compare.assert_same_bits(ours.state, theirs.state)
    assert "trainer" not in capfd.readouterr().err


def test_a_lion_of_another_formula_runs_in_the_trainer(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    class Decoupled(Lion):
        """What lion-pytorch makes of decoupled_weight_decay=True."""

        def decay(self, group: dict[str, Any]) -> float:
            return super().decay(group) / 1e-3

    Decoupled.__name__ = "Lion"
    plan = Plan(BY_NAME["tied"])
    make = partial(Decoupled, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.1)
    ours = trained(plan, make, job)
    theirs = plain(plan, make)
    compare.assert_same_bits(ours.state, theirs.state)
    assert "Lion runs in the trainer" in capfd.readouterr().err


@pytest.mark.parametrize("moments", ["fp32", "bf16", "int8"])
def test_moments_are_kept_in_the_format_that_is_asked_for(moments: str, job: str) -> None:
    model = nn.Sequential(nn.Linear(256, 64), nn.Linear(64, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tierd.torch.initialize(model, optimizer, job=job, moments=moments, stage=1)
    for _ in range(3):
        model(torch.ones(1, 256)).square().sum().backward()
        optimizer.step()
    found = tierd.torch.job_of(model).core.statistics()
    elements = sum(parameter.numel() for parameter in model.parameters())
    tierd.torch.close(model)
    per_element = found["logical_optimizer_bytes"] / elements
    expected = {"fp32": 8.0, "bf16": 4.0, "int8": 2 * (1 + 4 / 256)}[moments]
    assert per_element == pytest.approx(expected, rel=0.02)


def test_an_unknown_format_of_moments_is_refused(job: str) -> None:
    model = small()
    with pytest.raises(tierd.Error, match="there are fp32, bf16, int8"):
        tierd.torch.initialize(model, torch.optim.AdamW(model.parameters()), job=job, moments="fp8")
