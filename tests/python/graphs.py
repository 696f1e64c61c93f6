"""Random graphs of modules by seed, for a property test: a model, its batches, and how it is trained.

What follows from a seed runs on plain PyTorch, whose gradients are the truth. Modules are shared and nested;
weights are tied, kept and used outside of their modules; parts are conditional, checkpointed or in need of
second derivatives. See `graph_leaves` and `graph_nodes` for what a graph is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor, nn

from graph_leaves import LEAVES
from graph_nodes import NODES, Reentrant

STEPS = 3


class Model(nn.Module):
    """Blocks in a list between a first layer and a last one."""

    def __init__(self, blocks: list[nn.Module], width: int) -> None:
        super().__init__()
        self.into = nn.Linear(3, width)
        self.blocks = nn.ModuleList(blocks)
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.into(x)
        for block in self.blocks:
            hidden = hidden + block(torch.tanh(hidden))
        out: Tensor = self.out(hidden)
        return out


class _Builder:
    """Draws modules; those that are done may be drawn again, so that they are shared."""

    def __init__(self, random: Random, leaves: Sequence[str], nodes: Sequence[str]) -> None:
        self.random = random
        self.width = random.randint(2, 9)
        self.leaves, self.nodes = leaves, nodes
        self.done: list[nn.Module] = []

    def part(self, depth: int) -> nn.Module:
        """A module of at most that many levels."""
        random = self.random
        small = [module for module in self.done if sum(1 for _ in module.modules()) < 12]
        if small and random.random() < 0.15:
            return random.choice(small)
        if depth == 0 or random.random() < 0.35:
            made = LEAVES[random.choice(self.leaves)](random, self.width)
        else:
            parts = [self.part(depth - 1) for _ in range(random.randint(1, 3))]
            made = NODES[random.choice(self.nodes)](parts, random)
        self.done.append(made)
        return made

    def tie(self, model: nn.Module) -> None:
        """Gives two linear layers one weight, sometimes; then both are one to PyTorch, too."""
        linears = [m for m in model.modules() if type(m) is nn.Linear and m.weight.shape == (self.width, self.width)]
        if len(linears) > 1 and self.random.random() < 0.3:
            first, second = self.random.sample(linears, 2)
            second.weight = first.weight

    def freeze(self, model: Model) -> None:
        """Freezes a block, sometimes."""
        if self.random.random() < 0.2:
            self.random.choice(list(model.blocks)).requires_grad_(False)


BACKWARDS = ("once", "once", "once", "retained", "parts", "crossed", "thread", "inputs", "penalty")


@dataclass(frozen=True)
class Graph:
    """What follows from a seed: modules to draw from, and what is done in each of three steps of SGD.

    `backward` names a function of `_Steps`. `looks` evaluates between the steps, `throws` computes a graph
    that nobody goes backward from.
    """

    seed: int
    backward: str
    leaves: tuple[str, ...]
    nodes: tuple[str, ...]
    penalty: bool
    looks: bool
    throws: bool
    weight_decay: float
    momentum: float

    @staticmethod
    def of(seed: int) -> Graph:
        """The graph of a seed."""
        random = Random(seed)
        backward = random.choice(BACKWARDS)
        # Those cannot be derived twice, or from one input alone.
        refused = {"penalty": {"attention", "reentrant"}, "inputs": {"reentrant"}}.get(backward, set())
        leaves, nodes = (sorted(set(kinds) - refused) for kinds in (LEAVES, NODES))
        nodes = random.sample(nodes, random.randint(2, len(nodes)))
        if "packed" in nodes:
            # What a user's own function saves through a user's own hooks passes by everyone else.
            leaves.remove("custom")
        return Graph(
            seed=seed,
            backward=backward,
            leaves=tuple(random.sample(leaves, random.randint(2, len(leaves)))),
            nodes=tuple(nodes),
            penalty=random.random() < 0.2,
            looks=random.random() < 0.2,
            throws=random.random() < 0.2,
            weight_decay=random.choice([0.0, 0.1]),
            # Half of a number is exact, so it is all the same whether the sum is rounded once, as here, or twice.
            momentum=random.choice([0.0, 0.5]),
        )

    def make_model(self) -> Model:
        """The model; each call gives the same."""
        random = Random(self.seed + 1)
        builder = _Builder(random, self.leaves, self.nodes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            blocks = [builder.part(random.randint(0, 3)) for _ in range(random.randint(1, 4))]
            model = Model(blocks, builder.width)
        builder.tie(model)
        builder.freeze(model)
        return model.train()

    @property
    def has_reentrant(self) -> bool:
        """Whether a part is checkpointed in the older way, in which a gradient comes piece by piece."""
        return any(isinstance(module, Reentrant) for module in self.make_model().modules())

    @property
    def tolerance(self) -> float | None:
        """None: every bit has to be equal. The pieces of a gradient may be summed in another order."""
        return 1e-6 if self.has_reentrant else None

    def make_batch(self, step: int) -> Tensor:
        """Rows of inputs, which want gradients, so that reentrant checkpoints have some."""
        generator = torch.Generator().manual_seed(self.seed * 31 + step)
        return torch.randn((5, 3), generator=generator).requires_grad_()

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """A scalar of all outputs, and maybe of all weights."""
        loss: Tensor = torch.tanh(model(batch)).square().mean()
        if self.penalty:
            loss = loss + 1e-3 * sum((p.square().sum() for p in model.parameters()), torch.zeros(()))
        return loss


class _Steps:
    """The ways to go backward."""

    def __init__(self, graph: Graph, model: nn.Module) -> None:
        self.graph, self.model = graph, model

    def loss(self, step: int, part: int = 0) -> Tensor:
        return self.graph.loss(self.model, self.graph.make_batch(2 * step + part))

    def once(self, step: int) -> None:
        torch.autograd.backward(self.loss(step))

    def retained(self, step: int) -> None:
        """Twice through one graph."""
        loss = self.loss(step)
        torch.autograd.backward(loss, retain_graph=True)
        torch.autograd.backward(loss)

    def parts(self, step: int) -> None:
        """Two micro-batches."""
        self.once(step)
        torch.autograd.backward(self.loss(step, 1))

    def crossed(self, step: int) -> None:
        """Two micro-batches, both forward before the first goes backward."""
        losses = [self.loss(step, part) for part in range(2)]
        for loss in losses:
            torch.autograd.backward(loss)

    def thread(self, step: int) -> None:
        """In a thread of its own."""
        loss = self.loss(step)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(torch.autograd.backward, loss).result()

    def inputs(self, step: int) -> None:
        """First for the gradient of the input alone."""
        batch = self.graph.make_batch(step)
        loss = self.graph.loss(self.model, batch)
        (slope,) = torch.autograd.grad(loss, batch, retain_graph=True)
        torch.autograd.backward(loss * (1 + slope.detach().abs().mean()))

    def penalty(self, step: int) -> None:
        """With the norm of all gradients in the loss."""
        loss = self.loss(step)
        wanted = [p for p in self.model.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
        norms = sum((g.square().sum() for g in gradients if g is not None), torch.zeros(()))
        torch.autograd.backward(loss + 0.01 * norms)


Wrap = Callable[[nn.Module, torch.optim.Optimizer], tuple[nn.Module, torch.optim.Optimizer]]


def run(graph: Graph, wrap: Wrap = lambda model, optimizer: (model, optimizer)) -> dict[str, Tensor]:
    """Trains the graph's model as `wrap` returns it, and gives its state."""
    model: nn.Module = graph.make_model()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=graph.weight_decay, momentum=graph.momentum)
    model, optimizer = wrap(model, sgd)
    backward = getattr(_Steps(graph, model), graph.backward)
    # Differences in the last bits grow from step to step.
    for step in range(1 if graph.has_reentrant else STEPS):
        if graph.throws:
            graph.loss(model, graph.make_batch(100 + step))
        backward(step)
        optimizer.step()
        optimizer.zero_grad()
        if graph.looks:
            with torch.no_grad():
                model.eval()
                graph.loss(model, graph.make_batch(200 + step))
                model.train()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
