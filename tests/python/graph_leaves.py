"""Small modules that use their weights in as many ways as PyTorch has: the leaves of random graphs.

Each maps (rows, width) to the same shape. `LEAVES` has a builder of each, by name.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) / shape[-1] ** 0.5)


class Scale(nn.Module):
    """Parameters without a layer, one of them a single number."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = _weight(width)
        self.shift = nn.Parameter(torch.randn(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + self.gain) + self.shift


class Views(nn.Module):
    """A weight of which a use sees another view: transposed, sliced, narrowed, expanded, in fp64."""

    def __init__(self, width: int, kind: int) -> None:
        super().__init__()
        self.weight = _weight(2 * width, width)
        self.width, self.kind = width, kind

    def forward(self, x: Tensor) -> Tensor:
        width = self.width
        match self.kind:
            case 0:
                return x @ self.weight.t()[:, :width]
            case 1:
                left, right = self.weight.chunk(2)
                return functional.linear(x, left) + x * right.diagonal()
            case 2:
                return torch.einsum("ni,oi->no", x, self.weight[::2])
            case 3:
                return (x.double() @ self.weight.double()[width:]).to(x.dtype)
            case 4:
                row = self.weight.view(-1)[:width]
                return x + row.expand_as(x) * self.weight.select(0, 1)
            case 5:
                return torch.baddbmm(x.unsqueeze(0), x.unsqueeze(0), self.weight.narrow(0, 0, width).unsqueeze(0))[0]
            case _:
                return x + self.weight.reshape(2, width, width).mean(0).sum(0).detach() + self.weight[-1]


class InPlace(nn.Module):
    """A layer whose output is changed in place."""

    def __init__(self, width: int, kind: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.linear(x)
        match self.kind:
            case 0:
                hidden.relu_()
            case 1:
                hidden.tanh_()
            case 2:
                hidden += x
            case 3:
                hidden[:, 0] = self.linear.bias[0]
            case _:
                hidden.mul_(0.5).sigmoid_()
        return hidden


class Lookup(nn.Module):
    """An embedding, looked up where the input is largest."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(width + 3, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = x + self.embedding(x.detach().argmax(-1))
        return hidden


class Recurrent(nn.Module):
    """A GRU over the rows, or an LSTM's cell over each."""

    def __init__(self, width: int, kind: int) -> None:
        super().__init__()
        self.kind = kind
        self.inner: nn.Module = nn.LSTMCell(width, width) if kind else nn.GRU(width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.inner(x)[0]
        return hidden


class Convolution(nn.Module):
    """A convolution along the width, and a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(1, 2, 3, padding=1)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.norm(self.convolution(x.unsqueeze(1)).prod(1))
        return hidden


class Attention(nn.Module):
    """Attention between the rows, with the weights of PyTorch's own module."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2 if width % 2 == 0 else 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = x + self.attention(x, x, x, need_weights=False)[0]
        return hidden


class _Cube(torch.autograd.Function):
    """x · w³ of a function that saves the weight itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight**3

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        return gradient * weight**3, (gradient * x * 3 * weight**2).sum(0)


class Custom(nn.Module):
    """A user's own function of autograd."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = _weight(width)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = x + _Cube.apply(x, self.weight)
        return hidden


class Slope(nn.Module):
    """The gradient of a small network, as gradient penalties have it: backward needs second derivatives."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            point = x if x.requires_grad else x.detach().requires_grad_()
            energy = self.second(torch.tanh(self.first(point))).sum()
            (slope,) = torch.autograd.grad(energy, point, create_graph=True)
        return x + slope


class Mixed(nn.Module):
    """A layer with a frozen bias, one of each kind of parametrization, and a parameter that is never used."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.linear.bias.requires_grad_(False)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(width, width))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.normed(functional.silu(self.linear(x)))
        return hidden


Leaf = Callable[[Random, int], nn.Module]

LEAVES: dict[str, Leaf] = {
    "linear": lambda random, width: nn.Linear(width, width, bias=random.random() < 0.7),
    "norm": lambda random, width: nn.LayerNorm(width),
    "scale": lambda random, width: Scale(width),
    "views": lambda random, width: Views(width, random.randrange(7)),
    "in_place": lambda random, width: InPlace(width, random.randrange(5)),
    "lookup": lambda random, width: Lookup(width),
    "recurrent": lambda random, width: Recurrent(width, random.randrange(2)),
    "convolution": lambda random, width: Convolution(width),
    "attention": lambda random, width: Attention(width),
    "custom": lambda random, width: Custom(width),
    "slope": lambda random, width: Slope(width),
    "mixed": lambda random, width: Mixed(width),
}
