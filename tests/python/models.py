"""Small models that the package is compared with plain PyTorch on: each is a case with a name.

A case builds its model from a seed and its batches from a step's number, so that two trainings of it
differ in nothing but the trainer. No case reads a file or the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import own_models
import transformer_models

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """One model, its data and its loss.

    `build` makes the model with PyTorch's global random numbers, `batch` makes one batch with those of the
    generator that it gets, `loss` is a scalar of the model and a batch. `skips` says that some parameters
    have no gradient in some steps.
    """

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator, int], Batch]
    loss: Callable[[nn.Module, Batch], Tensor]
    skips: bool = False

    def __str__(self) -> str:
        return self.name

    def make_model(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model of a seed, in training mode, rounded from fp32. It takes no global random number."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build().to(dtype).train()

    def make_batch(self, step: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Batch:
        """The batch of a step: integers as they are, floating point numbers in `dtype`."""
        generator = torch.Generator().manual_seed(1_000_003 * seed + step)
        batch = self.batch(generator, step)
        return {key: value.to(dtype) if value.is_floating_point() else value for key, value in batch.items()}


def _case(module: object, name: str, *, skips: bool = False) -> Case:
    """The case whose functions are called `NAME`, `NAME_batch` and `NAME_loss` in a module."""
    return Case(
        name=name,
        build=getattr(module, name),
        batch=getattr(module, f"{name}_batch"),
        loss=getattr(module, f"{name}_loss"),
        skips=skips,
    )


CASES: tuple[Case, ...] = (
    _case(own_models, "twice"),
    _case(own_models, "tied"),
    _case(own_models, "branches", skips=True),
    _case(own_models, "resnet"),
    _case(own_models, "lstm"),
    _case(own_models, "weight_norm"),
    _case(transformer_models, "gpt2"),
    _case(transformer_models, "llama"),
    _case(transformer_models, "mixtral"),
    _case(transformer_models, "qwen3_moe"),
    _case(transformer_models, "t5"),
    _case(transformer_models, "bert"),
    _case(transformer_models, "vit"),
    _case(transformer_models, "whisper"),
    _case(transformer_models, "mamba"),
)

BY_NAME: dict[str, Case] = {case.name: case for case in CASES}
