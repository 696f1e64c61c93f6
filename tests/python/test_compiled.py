"""What is put between a model and its forward: compilation, checkpoints, autocast, torch.func, workers of loaders.

Each is compared with the same without tierd, to the bit.
"""

from __future__ import annotations

import copy
import multiprocessing
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.data import DataLoader, Dataset

import compare
import tierd
from conftest import PART
from training import initialize

pytestmark = [
    # Of selective checkpoints within hooks for saved tensors: what both do now is right here, and what they will do is, too.
    pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context:FutureWarning"),
]

Apply = Callable[[nn.Module, Tensor], Any]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = x + self.down(torch.tanh(self.up(self.norm(x))))
        return total


class Network(nn.Module):
    def __init__(self, apply: Apply) -> None:
        super().__init__()
        self.words = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 16)
        self.apply_block = apply

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = self.apply_block(block, x)
        logits: Tensor = self.head(x)
        return logits


def directly(block: nn.Module, x: Tensor) -> Any:
    return block(x)


def words(step: int) -> Tensor:
    return torch.randint(16, (2, 5), generator=torch.Generator().manual_seed(step))


class Pair:
    """A network on tierd, and the same without."""

    def __init__(self, job: str, apply: Apply = directly):
        torch.manual_seed(0)
        self.ours = Network(apply)
        self.theirs = copy.deepcopy(self.ours)
        self.optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (self.ours, self.theirs)]
        initialize(self.ours, self.optimizers[0], job)

    def assert_train_alike(
        self, run: Callable[[nn.Module], Callable[[Tensor], Tensor]] = lambda model: model, **options: Any
    ) -> None:
        losses = []
        for model, optimizer in zip((self.ours, self.theirs), self.optimizers, strict=True):
            torch.compiler.reset()
            losses.append(train(run(model), optimizer, **options))
        compare.assert_losses_close(losses[0], losses[1], 0.0)
        compare.assert_same_bits(self.ours, self.theirs)


def train(
    call: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    micro_batches: int = 1,
    is_autocast: bool = False,
    after_step: Callable[[], object] = lambda: None,
) -> list[float]:
    losses = []
    for step in range(3):
        for part in range(micro_batches):
            batch = words(step * micro_batches + part)
            with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
                loss = cross_entropy(call(batch).flatten(0, 1).float(), batch.flatten())
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        after_step()
    return losses


# ---- Checkpoints


def keep_products() -> Any:
    """Of selective checkpoints: what matrices were multiplied to is kept."""

    def policy(context: Any, function: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_product = function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def of_forward(block: nn.Module, x: Tensor, use_reentrant: bool) -> Any:
    """As transformers does: the module's hooks do not run in the recomputation."""
    return checkpoint(block.forward, x, use_reentrant=use_reentrant)


CHECKPOINTS: dict[str, Apply] = {
    "reentrant": partial(checkpoint, use_reentrant=True),
    "plain": partial(checkpoint, use_reentrant=False),
    "whole": partial(checkpoint, use_reentrant=False, early_stop=False),
    "selective": partial(checkpoint, use_reentrant=False, context_fn=keep_products),
    "reentrant-forward": partial(of_forward, use_reentrant=True),
    "plain-forward": partial(of_forward, use_reentrant=False),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
@pytest.mark.parametrize("is_autocast", [False, True], ids=["fp32", "autocast"])
def test_checkpoints_give_every_bit(kind: str, is_autocast: bool, job: str) -> None:
    Pair(job, CHECKPOINTS[kind]).assert_train_alike(is_autocast=is_autocast, micro_batches=2)


# ---- torch.compile


def blocks(model: Any, **options: Any) -> Any:
    for block in model.blocks:
        block.compile(**options)
    return model


def forwards(model: Any, **options: Any) -> Any:
    for block in model.blocks:
        block.forward = torch.compile(block.forward, **options)
    return model


def whole(model: Any, **options: Any) -> Any:
    return torch.compile(model, **options)


@pytest.mark.parametrize(
    ("compiled", "kind"),
    [(blocks, ""), (forwards, ""), (whole, ""), (blocks, "plain"), (whole, "reentrant"), (whole, "plain")],
)
def test_compiled_models_give_every_bit_and_are_compiled_once(
    compiled: Callable[..., Any], kind: str, job: str
) -> None:
    pair = Pair(job, CHECKPOINTS.get(kind, directly))
    graphs: list[int] = []
    counter = CompileCounterWithBackend("aot_eager")
    pair.assert_train_alike(partial(compiled, backend=counter), after_step=lambda: graphs.append(counter.frame_count))
    ours = graphs[:3]
    # Forward is compiled in the first step; afterwards what was decided there serves.
    assert ours[0] > 0
    assert ours[2] == ours[1]


# At night: it compiles C++, which takes as long as all else here.
if PART == 1:

    def test_a_block_by_inductor_gives_every_bit(job: str) -> None:
        def first(model: Any) -> Any:
            model.blocks[0].norm.compile()
            return model

        Pair(job).assert_train_alike(first)


def test_a_whole_graph_is_of_a_block(job: str) -> None:
    pair = Pair(job)
    pair.assert_train_alike(partial(forwards, backend="aot_eager", fullgraph=True))
    with pytest.raises(Exception, match=r"tierd gathers parameters here: compile blocks"):
        torch.compile(pair.ours, backend="aot_eager", fullgraph=True)(words(0))


def test_a_trace_is_refused_and_leaves_the_model_as_it_was(job: str) -> None:
    pair = Pair(job)
    with pytest.raises(tierd.Error, match=r"within torch\.jit\.trace"):
        torch.jit.trace(pair.ours, words(0))
    pair.assert_train_alike()


# ---- torch.func


def test_functional_call_and_vmap_give_every_bit(job: str) -> None:
    pair = Pair(job)
    with torch.no_grad():
        call, batch = torch.func.functional_call, words(0)
        expected = pair.theirs(batch)
        assert torch.equal(call(pair.ours, dict(pair.theirs.named_parameters()), (batch,)), expected)
        assert torch.equal(call(pair.ours, dict(pair.ours.named_parameters()), (batch,)), expected)
        assert torch.equal(torch.vmap(pair.ours)(batch), torch.vmap(pair.theirs)(batch))


# ---- Workers


class Words(Dataset[Tensor]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        return words(index)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_loader_change_nothing(context: str, job: str) -> None:
    pair = Pair(job)
    for index, batch in enumerate(DataLoader(Words(), None, num_workers=1, multiprocessing_context=context)):
        assert torch.equal(pair.ours(batch), pair.theirs(words(index)))
    pair.assert_train_alike()


def test_a_forked_process_that_gathers_gets_a_sentence(job: str) -> None:
    def use(said: Any) -> None:
        try:
            pair.ours(words(0))
        except tierd.Error as error:
            said.send(str(error))

    context = multiprocessing.get_context("fork")
    pair = Pair(job)
    ours, theirs = context.Pipe(False)
    process = context.Process(target=use, args=(theirs,))
    process.start()
    theirs.close()
    assert "cannot be used in a process that was forked" in ours.recv()
    process.join()
    pair.assert_train_alike()
