"""What autograd saves for backward: errors that plain PyTorch raises are raised, and what nobody needs is freed."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from training import end, initialize


class Block(nn.Module):
    """A layer and tanh, which saves its own output; it is changed in place after that, where one asks for it."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.in_place = in_place
        self.seen: weakref.ref[Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.linear(x))
        self.seen = weakref.ref(hidden)
        if self.in_place:
            hidden.mul_(2)
        return hidden * 3


def on_tierd(block: Block, job: str) -> nn.Module:
    """The block in a list, as models have them, put on tierd."""
    model = nn.Sequential(block, nn.Linear(4, 2))
    return initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job)[0]


def test_an_activation_that_is_changed_in_place_raises_as_in_torch(job: str) -> None:
    model = on_tierd(Block(in_place=True), job)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(model(torch.randn(3, 4)).sum())


def test_a_graph_that_is_thrown_away_is_freed(job: str) -> None:
    block = Block(in_place=False)
    model = on_tierd(block, job)
    model(torch.randn(3, 4))
    gc.collect()
    assert block.seen is not None
    assert block.seen() is None


def test_a_model_is_freed_after_its_job_is_closed(job: str) -> None:
    block = Block(in_place=False)
    weight = weakref.ref(block.linear.weight)
    model = on_tierd(block, job)
    end(model, job)
    del block, model
    gc.collect()
    assert weight() is None
