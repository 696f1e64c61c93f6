"""Hundreds of random graphs of modules: after three steps each parameter has every bit of plain PyTorch's.

A failure says its seed: `TIERD_SEED=17` repeats that one. `TIERD_SEEDS=100000` runs as many.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
from torch import nn
from torch.optim import Optimizer

import compare
from conftest import PART
from graphs import Graph, run
from training import end, initialize

AT_ONCE = 100


def parts() -> list[range]:
    """The seeds, of which each test takes a part."""
    if "TIERD_SEED" in os.environ:
        seed = int(os.environ["TIERD_SEED"])
        return [range(seed, seed + 1)]
    last = int(os.environ.get("TIERD_SEEDS", 300 // PART))
    return [range(first, min(first + AT_ONCE, last)) for first in range(0, last, AT_ONCE)]


def assert_same_as_plain(seed: int, **options: Any) -> None:
    """Fails with the graph and the first parameter that differs."""
    graph = Graph.of(seed)

    job = f"graph-{seed}"
    wrapped: list[nn.Module] = []

    def wrap(model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        model, optimizer = initialize(model, optimizer, job, **options)
        wrapped.append(model)
        return model, optimizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = run(graph)
        try:
            difference = compare.difference(run(graph, wrap), theirs, graph.tolerance)
        except Exception as error:
            error.add_note(f"TIERD_SEED={seed} repeats it: {graph}\n{graph.make_model()}")
            raise
        finally:
            for model in wrapped:
                end(model, job)
    assert not difference, f"{difference}\nTIERD_SEED={seed} repeats it: {graph}\n{graph.make_model()}"


@pytest.mark.parametrize("seeds", parts(), ids=str)
def test_a_random_graph_gives_every_bit_of_plain_torch(seeds: range) -> None:
    for seed in seeds:
        assert_same_as_plain(seed)
