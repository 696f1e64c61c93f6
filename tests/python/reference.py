"""Trainings without tierd, which are the truth: with `torch.optim`, and by the formulas of numerics.md.

Both give losses and a state. `plain` is what a user of PyTorch has today. `exact` has what no optimizer of
torch has: fp32 masters of bf16 and fp16 parameters, sums of micro-batches in fp32, and tierd's roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from formulas import Rule, fp32, rounded
from models import Case

State = dict[str, Tensor]


def constant(step: int) -> float:
    """The schedule that leaves the learning rate as it is."""
    return 1.0


@dataclass(frozen=True)
class Plan:
    """What a training is but its optimizer: steps of a case, each of some micro-batches, by one seed.

    `schedule` gives what the learning rate is multiplied with in a step. `max_grad_norm` 0 clips nothing.
    """

    case: Case
    steps: int = 20
    seed: int = 0
    dtype: torch.dtype = torch.float32
    micro_batches: int = 1
    max_grad_norm: float = 0.0
    schedule: Callable[[int], float] = constant

    def make_model(self) -> nn.Module:
        return self.case.make_model(self.seed, self.dtype)

    def losses(self, model: nn.Module, step: int) -> Iterable[Tensor]:
        """The loss of each micro-batch of a step, divided by their number, to go backward from."""
        for part in range(self.micro_batches):
            batch = self.case.make_batch(step * self.micro_batches + part, self.seed, self.dtype)
            yield self.case.loss(model, batch) / self.micro_batches


@dataclass
class Training:
    """What came of a training: each step's loss, and the model's state after the last one."""

    losses: list[float] = field(default_factory=list)
    state: State = field(default_factory=dict)


def train(
    plan: Plan,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    before_step: Callable[[], object] = lambda: None,
) -> Training:
    """The loop that a user writes; it is the same with tierd and without."""
    result = Training()
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    for step in range(plan.steps):
        total = 0.0
        for loss in plan.losses(model, step):
            loss.backward()
            total += float(loss.detach())
        result.losses.append(total)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * plan.schedule(step)
        before_step()
        optimizer.step()
        optimizer.zero_grad()
    result.state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    return result


def plain(plan: Plan, make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]) -> Training:
    """Trains with an optimizer of torch, clipping by the norm in fp64."""
    model = plan.make_model()
    parameters = list(model.parameters())
    return train(plan, model, make_optimizer(parameters), lambda: clip(parameters, plan.max_grad_norm))


def clip(parameters: list[nn.Parameter], max_norm: float) -> float:
    """Scales gradients as torch's `clip_grad_norm_` does, by a norm in fp64; torch's own is off by 4e-5."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = norm_of(gradients)
    if max_norm > 0 and norm > max_norm:
        for gradient in gradients:
            gradient.mul_(fp32(max_norm / (norm + 1e-6)))
    return norm


def norm_of(gradients: Iterable[Tensor]) -> float:
    """The norm of all gradients together, in fp64."""
    return math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))


@dataclass
class LossScale:
    """What fp16 losses are multiplied with, moved as `torch.amp.GradScaler` does; `interval` 0: it stays."""

    scale: float = 65536.0
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 0
    good: int = 0

    def move(self, skipped: bool) -> None:
        """After a step is decided."""
        self.good = 0 if skipped else self.good + 1
        if not self.interval:
            return
        if skipped:
            self.scale *= self.backoff
        elif self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0


@dataclass
class _Parameter:
    """A parameter with its fp32 master, its rule, and the sum of its gradients since the last step."""

    parameter: nn.Parameter
    rule: Rule
    master: Tensor
    sum: Tensor | None = None
    count: int = 0

    def take_gradient(self) -> None:
        """Adds the gradient of a micro-batch; none leaves no sum."""
        if self.parameter.grad is not None:
            gradient = self.parameter.grad.detach().float()
            self.sum = gradient.clone() if self.sum is None else self.sum + gradient
            self.parameter.grad = None

    def update(self, factor: float, schedule: float) -> None:
        """A parameter without gradient is left as it is, and does not count the step: as torch does."""
        if self.sum is None:
            return
        self.count += 1
        self.rule.update(self.master, self.sum * factor, fp32(self.rule.lr * schedule), self.count)
        self.parameter.data.copy_(rounded(self.master, self.parameter.dtype))


def exact(
    plan: Plan,
    rule_of: Callable[[str], Rule],
    loss_scale: LossScale | None = None,
) -> Training:
    """Trains with fp32 masters by docs/numerics.md; `rule_of` gives a parameter of that name its rule."""
    scaling = loss_scale or LossScale(1.0)
    model = plan.make_model()
    parameters = [
        _Parameter(parameter, rule_of(name), parameter.detach().float().clone())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    result = Training()
    for step in range(plan.steps):
        total = 0.0
        for loss in plan.losses(model, step):
            (loss * scaling.scale).backward()
            total += float(loss.detach())
            for parameter in parameters:
                parameter.take_gradient()
        result.losses.append(total)
        _apply(plan, parameters, scaling, step)
    result.state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    return result


def _apply(plan: Plan, parameters: list[_Parameter], scaling: LossScale, step: int) -> None:
    """Clips and updates, or skips the step where a gradient is not finite."""
    norm = norm_of(p.sum for p in parameters if p.sum is not None) / scaling.scale
    skipped = not math.isfinite(norm)
    clipped = plan.max_grad_norm > 0 and norm > plan.max_grad_norm
    factor = fp32(1.0 / scaling.scale * (plan.max_grad_norm / (norm + 1e-6) if clipped else 1.0))
    for parameter in parameters:
        if not skipped:
            parameter.update(factor, plan.schedule(step))
        parameter.sum = None
    scaling.move(skipped)
