"""Adapters that are trained over a frozen base: the bits of the same training without tierd."""

from __future__ import annotations

import copy
import json
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import compare
from conftest import TIERCTL
from models import BY_NAME
from training import end, initialize, job_name

pytestmark = pytest.mark.usefixtures("daemon")

LLAMA = BY_NAME["llama"]


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    """A job's name of this test alone."""
    return job_name(request.node.name)


def adapted(base: nn.Module, **options: Any) -> Any:
    """The base, frozen, with adapters of LoRA."""
    peft = pytest.importorskip("peft")
    targets = ["q_proj", "v_proj", "down_proj"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM", **options)
        return peft.get_peft_model(base, config)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([item for item in model.parameters() if item.requires_grad], lr=0.5)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int = 0) -> list[float]:
    losses = []
    for step in range(first, first + 3):
        loss = LLAMA.loss(model, LLAMA.make_batch(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def assert_trains_alike(build: Callable[[], nn.Module], job: str) -> Iterator[tuple[Any, Any]]:
    """Trains two of a model, one of them with tierd, and once more after what the caller does with them."""
    ours, theirs = build(), build()
    our_optimizer, their_optimizer = sgd(ours), sgd(theirs)
    initialize(ours, our_optimizer, job)
    try:
        for first in (0, 3):
            losses = train(theirs, their_optimizer, first)
            compare.assert_losses_close(train(ours, our_optimizer, first), losses, 0.0)
            compare.assert_same_bits(ours, theirs)
            if first == 0:
                yield ours, theirs
    finally:
        end(ours, job)


def units(job: str) -> list[dict[str, Any]]:
    said = subprocess.run([TIERCTL, "units", job, "--json"], capture_output=True, text=True, check=True).stdout
    found: list[dict[str, Any]] = json.loads(said)
    return found


def test_adapters_over_a_frozen_base_get_every_bit_of_plain_torch(job: str, tmp_path: Path) -> None:
    batch = LLAMA.make_batch(9)
    for ours, theirs in assert_trains_alike(lambda: adapted(LLAMA.make_model()), job):
        with torch.no_grad(), ours.disable_adapter(), theirs.disable_adapter():
            assert torch.equal(ours(**batch).logits, theirs(**batch).logits)
        ours.save_pretrained(tmp_path / "ours")
        theirs.save_pretrained(tmp_path / "theirs")
        saved = [load_file(tmp_path / of / "adapter_model.safetensors") for of in ("ours", "theirs")]
        compare.assert_same_bits(*saved)
        merged = copy.deepcopy(ours).merge_and_unload()
        compare.assert_same_bits(merged, copy.deepcopy(theirs).merge_and_unload())
        frozen = {unit["name"]: unit["is_frozen"] for unit in units(job)}
        block = "base_model.model.model.layers.0"
        assert frozen[f"{block}.frozen"]
        assert not frozen[block]
    # A copy has nothing to do with the job, which has ended.
    assert torch.isfinite(merged(**batch).logits).all()


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "other"])
def test_adapters_with_checkpoints_get_every_bit_of_plain_torch(use_reentrant: bool, job: str) -> None:
    def build() -> nn.Module:
        adapters = adapted(LLAMA.make_model())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a newer name of transformers
            adapters.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        adapters.enable_input_require_grads()
        model: nn.Module = adapters
        return model

    for _ in assert_trains_alike(build, job):
        pass


def test_a_frozen_weight_that_is_kept_holds_no_step_up(job: str) -> None:
    """So do functions of autograd that keep it as an attribute, as those of quantized layers, until the loss goes."""
    frozen = nn.Linear(4, 4).requires_grad_(False)
    model = nn.Sequential(nn.Sequential(frozen, nn.Linear(4, 4)), nn.Linear(4, 1))
    optimizer = sgd(model)
    initialize(model, optimizer, job)
    try:
        weight = frozen.weight.detach()
        values = weight.clone()
        for _ in range(2):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
        assert torch.equal(weight, values)
        assert torch.equal(weight, frozen.weight)
    finally:
        end(model, job)
