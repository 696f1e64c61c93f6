"""Modules that run other modules in as many ways as models do: the inner nodes of random graphs.

Each maps (rows, width) to the same shape, as its parts do. `NODES` has a builder of each, by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Node(nn.Module):
    """Parts in a list, which is what blocks of a model look like."""

    def __init__(self, parts: list[nn.Module], random: Random) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.setup(random)

    def setup(self, random: Random) -> None:
        """Draws what a kind of node has of its own."""

    def through(self, x: Tensor) -> Tensor:
        """All parts, one after the other."""
        for part in self.parts:
            x = part(x)
        return x


class Chain(Node):
    """One part after the other."""

    def forward(self, x: Tensor) -> Tensor:
        return self.through(x)


class Residue(Node):
    """Adds to the input; the sum is changed in place."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = x + self.through(x)
        hidden.mul_(0.5)
        return hidden


class Repeat(Node):
    """The same parts, several times."""

    def setup(self, random: Random) -> None:
        self.times = random.randint(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = torch.tanh(self.through(x))
        return x


class Choice(Node):
    """One part, by what the input is: another one in another step."""

    def forward(self, x: Tensor) -> Tensor:
        chosen = int(x.detach().abs().sum() * 100) % len(self.parts)
        hidden: Tensor = self.parts[chosen](x)
        return hidden


class Kept(Node):
    """Keeps weights of its parts until all of them have run, and uses them then."""

    def forward(self, x: Tensor) -> Tensor:
        weights = []
        for part in self.parts:
            weights += [weight for weight in part.parameters() if weight.ndim == 2 and weight.shape[1] == x.shape[1]]
            x = part(x)
        for weight in weights:
            x = x + 0.1 * functional.linear(x, weight).mean(1, keepdim=True)
        return x


class Outside(Node):
    """Uses weights of its parts before they run, and of some that never do."""

    def forward(self, x: Tensor) -> Tensor:
        penalty = sum((p.square().sum() for p in self.parts[-1].parameters()), torch.zeros(()))
        for part in self.parts[:-1]:
            x = part(x)
        return x - 0.01 * penalty.to(x.dtype)


class Checkpointed(Node):
    """Computes its parts again in backward."""

    reentrant = False

    def setup(self, random: Random) -> None:
        self.each = random.random() < 0.5
        self.method = random.random() < 0.5

    def forward(self, x: Tensor) -> Tensor:
        if not self.each:
            return self._again(self.through, x)
        for part in self.parts:
            # What transformers checkpoints: forward itself, around which no hook of a module runs.
            x = self._again(part.forward if self.method else part, x)
        return x

    def _again(self, run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        hidden: Tensor = checkpoint(run, x, use_reentrant=self.reentrant)
        return hidden


class Reentrant(Checkpointed):
    """The older kind of checkpoints."""

    reentrant = True


class Without(Node):
    """Runs a part without gradient, which gives what the others take."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            held = self.parts[0](x)
        for part in self.parts[1:]:
            x = part(x + held)
        return x


class Several(Node):
    """Gives a tuple and a dictionary around its output, of which its caller uses a part; takes keywords."""

    class Inner(nn.Module):
        """The block."""

        def __init__(self, part: nn.Module) -> None:
            super().__init__()
            self.part = part

        def forward(self, *, x: Tensor) -> tuple[Tensor, dict[str, Tensor | None]]:
            hidden = self.part(x)
            return hidden.sum(), {"out": hidden, "none": None, "in": x}

    def setup(self, random: Random) -> None:
        self.blocks = nn.ModuleList(Several.Inner(part) for part in self.parts)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            _, out = block(x=x)
            x = out["out"] + 0.1 * out["in"]
        return x


class Failing(Node):
    """A block that raises after it has run its part; the caller goes on without it."""

    class Inner(nn.Module):
        """The block."""

        def __init__(self, part: nn.Module) -> None:
            super().__init__()
            self.part = part

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.part(x)
            raise ValueError(f"the block fails with {float(hidden.detach().sum())}")

    def setup(self, random: Random) -> None:
        self.failing = Failing.Inner(self.parts[0])

    def forward(self, x: Tensor) -> Tensor:
        with contextlib.suppress(ValueError):
            self.failing(x)
        return self.through(x)


def _keep(tensor: Tensor) -> Tensor:
    """The tensor itself, but for what is computed: its function would keep it, and it its function."""
    return tensor if tensor.grad_fn is None else tensor.detach()


class Packed(Node):
    """Has hooks for saved tensors of its own: they keep them, or copies."""

    def setup(self, random: Random) -> None:
        self.kind = random.randrange(2)

    def forward(self, x: Tensor) -> Tensor:
        pack = _keep if self.kind else lambda tensor: tensor.detach().clone()
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with hooks:
            return self.through(x)


class Weightless(Node):
    """Gives a parameter itself as a block's output."""

    class Inner(nn.Module):
        """The block."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(1))

        def forward(self) -> nn.Parameter:
            return self.weight

    def setup(self, random: Random) -> None:
        self.block = Weightless.Inner()

    def forward(self, x: Tensor) -> Tensor:
        weight = self.block()
        hidden: Tensor = self.through(x) * weight + weight
        return hidden


def _halve(module: nn.Module, inputs: tuple[Tensor | None, ...], outputs: object) -> tuple[Tensor | None, ...]:
    return tuple(None if gradient is None else gradient * 0.5 for gradient in inputs)


class Hooked(Node):
    """Its parts have hooks of the user's: before forward, after it, and after backward."""

    def setup(self, random: Random) -> None:
        for part in self.parts:
            part.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 1.5,))
            part.register_forward_hook(lambda module, inputs, output: output + inputs[0])
            part.register_full_backward_hook(_halve)

    def forward(self, x: Tensor) -> Tensor:
        return self.through(x)


NODES: dict[str, type[Node]] = {
    "chain": Chain,
    "residue": Residue,
    "repeat": Repeat,
    "choice": Choice,
    "kept": Kept,
    "outside": Outside,
    "checkpointed": Checkpointed,
    "reentrant": Reentrant,
    "without": Without,
    "several": Several,
    "failing": Failing,
    "packed": Packed,
    "weightless": Weightless,
    "hooked": Hooked,
}
