"""Models of our own code, for what no small transformer has: each is a builder, a batch and a loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = dict[str, Tensor]


def _classes(generator: torch.Generator, *shape: int, classes: int = 5) -> Batch:
    """Normal inputs of a shape, with a class for each."""
    return {
        "x": torch.randn(shape, generator=generator),
        "y": torch.randint(classes, (shape[0],), generator=generator),
    }


def _cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch["x"]).float(), batch["y"])


class Twice(nn.Module):
    """A block that runs twice, and whose weight is used a third time, outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(12, 16)
        self.block = nn.Sequential(nn.Linear(16, 33), nn.ReLU(inplace=True), nn.Linear(33, 16))
        self.out = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.into(x))
        hidden = hidden + self.block(hidden)
        hidden = hidden + self.block(torch.tanh(hidden))
        first = self.block[0]
        assert isinstance(first, nn.Linear)
        out: Tensor = self.out(hidden + 0.1 * hidden @ first.weight[:16])
        return out


def twice() -> nn.Module:
    return Twice()


def twice_batch(generator: torch.Generator, step: int) -> Batch:
    return _classes(generator, 8, 12)


twice_loss = _cross_entropy


class Tied(nn.Module):
    """A language model of words, whose last layer has the weight of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(37, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(16, 37, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        out: Tensor = self.head(hidden)
        return out


def tied() -> nn.Module:
    return Tied()


def tied_batch(generator: torch.Generator, step: int) -> Batch:
    return {"x": torch.randint(37, (4, 9), generator=generator)}


def tied_loss(model: nn.Module, batch: Batch) -> Tensor:
    words = batch["x"]
    return functional.cross_entropy(model(words[:, :-1]).float().flatten(0, 1), words[:, 1:].flatten())


class Branches(nn.Module):
    """Experts of which a step uses two of four, one that no step uses, and a parameter that none uses."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(12, 16)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16)) for _ in range(5))
        self.never = nn.Parameter(torch.randn(7))
        self.out = nn.Linear(16, 5)

    def forward(self, x: Tensor, step: int) -> Tensor:
        hidden = torch.tanh(self.into(x))
        for expert in (step % 4, (step // 2) % 4):
            hidden = hidden + self.experts[expert](hidden)
        out: Tensor = self.out(hidden)
        return out


def branches() -> nn.Module:
    return Branches()


def branches_batch(generator: torch.Generator, step: int) -> Batch:
    return {**_classes(generator, 8, 12), "step": torch.tensor(step)}


def branches_loss(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch["x"], int(batch["step"])).float(), batch["y"])


class Residual(nn.Module):
    """A residual block of two convolutions with BatchNorm; the shortcut has one where the shape changes."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or into != out:
            self.shortcut = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.relu(self.first_norm(self.first(x)))
        hidden = self.second_norm(self.second(hidden))
        hidden += self.shortcut(x)
        out: Tensor = self.relu(hidden)
        return out


def resnet() -> nn.Module:
    """A residual network for pictures of 12 by 12; its running means are buffers, which training changes."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        Residual(8, 8, 1),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )


def resnet_batch(generator: torch.Generator, step: int) -> Batch:
    return _classes(generator, 8, 3, 12, 12)


resnet_loss = _cross_entropy


class Recurrent(nn.Module):
    """Two LSTM layers in both directions, whose flat weights PyTorch keeps in a list, and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(10, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(24, 9, batch_first=True)
        self.out = nn.Linear(9, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.gru(self.lstm(x)[0])
        out: Tensor = self.out(hidden[:, -1])
        return out


def lstm() -> nn.Module:
    return Recurrent()


def lstm_batch(generator: torch.Generator, step: int) -> Batch:
    return _classes(generator, 6, 7, 10)


lstm_loss = _cross_entropy


def weight_norm() -> nn.Module:
    """Layers whose weight is computed from parameters: by its norm and direction, and by its spectral norm.

    The latter keeps vectors as buffers, which each forward in training mode changes.
    """
    return nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(12, 20)),
        nn.Tanh(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(20, 20)),
        nn.Tanh(),
        nn.Linear(20, 5),
    )


def weight_norm_batch(generator: torch.Generator, step: int) -> Batch:
    return _classes(generator, 8, 12)


weight_norm_loss = _cross_entropy
