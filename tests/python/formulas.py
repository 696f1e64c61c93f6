"""The optimizers' formulas as docs/numerics.md has them, over whole tensors, to the bit.

A rule keeps the slots of one parameter and updates its fp32 master. It shares nothing with the kernels or
with `torch.optim`, so that a mistake in either shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


def fp32(number: float) -> float:
    """A number rounded to fp32."""
    return float(torch.tensor(number, dtype=torch.float32))


def fma(a: Tensor | float, b: Tensor, c: Tensor) -> Tensor:
    """a·b + c of fp32 with one rounding.

    fp64 holds the product exactly. The sum is rounded to odd there, so that rounding it again to fp32 gives
    what one rounding would.
    """
    product = a * b.double()
    sum_ = product + c.double()
    back = sum_ - product
    error = (product - (sum_ - back)) + (c.double() - back)
    bits = sum_.view(torch.int64)
    inexact = torch.isfinite(error) & (error != 0) & (bits & 1 == 0)
    outward = torch.where((error > 0) == (sum_ > 0), 1, -1)
    return torch.where(inexact, bits + outward, bits).view(torch.float64).float()


def away_from_zero(master: Tensor) -> Tensor:
    """The bf16 nearest to each fp32, half away from zero, as tierd rounds; torch takes the even one."""
    bits = (master.view(torch.int32) + 0x8000) & -0x10000
    return bits.view(torch.float32).bfloat16()


def rounded(master: Tensor, dtype: torch.dtype) -> Tensor:
    """A master in the format of its parameter."""
    return away_from_zero(master) if dtype == torch.bfloat16 else master.to(dtype)


class Rule(Protocol):
    """Updates one parameter's master in place; `count` is how often it has been updated, with this one."""

    lr: float

    def update(self, master: Tensor, gradient: Tensor, rate: float, count: int) -> None: ...


@dataclass
class Sgd:
    """SGD with momentum, dampening, Nesterov's variant and weight decay (L2)."""

    lr: float
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    buffer: Tensor | None = field(default=None, repr=False)

    def update(self, master: Tensor, gradient: Tensor, rate: float, count: int) -> None:
        g = fma(fp32(self.weight_decay), master, gradient) if self.weight_decay else gradient
        if self.momentum:
            rest = 1.0 if count == 1 else fp32(1.0 - fp32(self.dampening))
            before = torch.zeros_like(master) if self.buffer is None else self.buffer
            self.buffer = fma(fp32(self.momentum), before, rest * g)
            g = fma(fp32(self.momentum), self.buffer, g) if self.nesterov else self.buffer
        master.copy_(fma(-fp32(rate), g, master))


@dataclass
class AdamW:
    """AdamW, or with `decoupled` false Adam, whose weight decay is a part of the gradient."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    decoupled: bool = True
    m: Tensor | None = field(default=None, repr=False)
    v: Tensor | None = field(default=None, repr=False)

    def update(self, master: Tensor, gradient: Tensor, rate: float, count: int) -> None:
        beta1, beta2 = fp32(self.betas[0]), fp32(self.betas[1])
        step = fp32(rate / (1.0 - power(beta1, count)))
        scale = fp32(1.0 / math.sqrt(1.0 - power(beta2, count)))
        m = torch.zeros_like(master) if self.m is None else self.m
        v = torch.zeros_like(master) if self.v is None else self.v

        decayed, g = master, gradient
        if self.decoupled:
            decayed = master * fp32(1.0 - rate * fp32(self.weight_decay))
        else:
            g = fma(fp32(self.weight_decay), master, gradient)
        self.m = fma(beta1, m, fp32(1.0 - beta1) * g)
        self.v = fma(beta2, v, (fp32(1.0 - beta2) * g) * g)
        # The mathematical library's root of fp32 is not rounded to the nearest.
        root = self.v.double().sqrt().float()
        denominator = fma(scale, root, torch.full_like(master, self.eps))
        master.copy_(fma(-step, self.m / denominator, decayed))


@dataclass
class Lion:
    """Lion, whose step is a sign."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    m: Tensor | None = field(default=None, repr=False)

    def update(self, master: Tensor, gradient: Tensor, rate: float, count: int) -> None:
        beta1, beta2 = fp32(self.betas[0]), fp32(self.betas[1])
        m = torch.zeros_like(master) if self.m is None else self.m
        c = fma(beta1, m, fp32(1.0 - beta1) * gradient)
        self.m = fma(beta2, m, fp32(1.0 - beta2) * gradient)
        decay = fp32(1.0 - rate * fp32(self.weight_decay))
        master.copy_(fma(-fp32(rate), torch.sign(c), master * decay))


def power(base: float, exponent: int) -> float:
    """base^exponent in fp64 by binary exponentiation."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
