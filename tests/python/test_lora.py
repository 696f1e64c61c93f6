"""Adapters that are trained over a frozen base, plain or quantized: the bits of the same training without tierd."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

import compare
import tierd
from conftest import tierctl
from models import BY_NAME
from training import initialize, update

LLAMA = BY_NAME["llama"]


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
        update(loss, optimizer)
        losses.append(loss.item())
    return losses


def assert_trains_alike(build: Callable[[], nn.Module], job: str) -> Iterator[tuple[Any, Any]]:
    """Trains two of a model, one of them with tierd, and once more after what the caller does with them."""
    ours, theirs = build(), build()
    our_optimizer, their_optimizer = sgd(ours), sgd(theirs)
    initialize(ours, our_optimizer, job)
    for first in (0, 3):
        losses = train(theirs, their_optimizer, first)
        compare.assert_losses_close(train(ours, our_optimizer, first), losses, 0.0)
        compare.assert_same_bits(ours, theirs)
        if first == 0:
            yield ours, theirs


def units(job: str) -> list[dict[str, Any]]:
    said = tierctl("units", job, "--json")
    found: list[dict[str, Any]] = json.loads(said)
    return found


def test_adapters_over_a_frozen_base_get_every_bit_of_plain_torch(job: str, tmp_path: Path) -> None:
    batch = LLAMA.make_batch(9)
    for ours, theirs in assert_trains_alike(lambda: adapted(LLAMA.make_model()), job):
        with torch.no_grad(), ours.disable_adapter(), theirs.disable_adapter():
            assert torch.equal(ours(**batch).logits, theirs(**batch).logits)
        ours.save_pretrained(tmp_path / "ours")
        theirs.save_pretrained(tmp_path / "theirs")
        # Without the base, which no memory has room for.
        state = ours.state_dict(keep_vars=True)
        adapters = {name: item.detach().clone() for name, item in state.items() if item.requires_grad}
        ours.save_pretrained(tmp_path / "alone", state_dict=adapters)
        saved = [load_file(tmp_path / of / "adapter_model.safetensors") for of in ("ours", "theirs", "alone")]
        compare.assert_same_bits(saved[0], saved[1])
        compare.assert_same_bits(saved[2], saved[1])
        merged = copy.deepcopy(ours).merge_and_unload()
        compare.assert_same_bits(merged, copy.deepcopy(theirs).merge_and_unload())
        frozen = {unit["name"]: unit["is_frozen"] for unit in units(job)}
        block = "base_model.model.model.layers.0"
        assert frozen[f"{block}.frozen"]
        assert not frozen[block]
    tierd.torch.close(ours)
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
    weight = frozen.weight.detach()
    values = weight.clone()
    for _ in range(2):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    assert torch.equal(weight, values)
    assert torch.equal(weight, frozen.weight)


# ---- Quantized bases


class QuantizedWeight(nn.Parameter):
    """Bytes, with a state of its own, as bitsandbytes has them."""

    scale: Tensor

    @staticmethod
    def of(weight: Tensor) -> QuantizedWeight:
        scale = weight.abs().amax(1, keepdim=True) / 127
        made: QuantizedWeight = torch.Tensor._make_subclass(QuantizedWeight, (weight / scale).round().to(torch.int8))
        made.scale = scale
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedWeight:
        made: QuantizedWeight = torch.Tensor._make_subclass(QuantizedWeight, self.data.clone())
        made.scale = self.scale.clone()
        return made


class Dequantized(torch.autograd.Function):
    """A product with a quantized weight, which it keeps as bytes: as an attribute, which torch does not see."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: QuantizedWeight, scale: Tensor) -> Tensor:
        context.kept = weight.data, scale
        return x @ (weight.to(x.dtype) * scale).t()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        weight, scale = context.kept
        return gradients[0] @ (weight.to(gradients[0].dtype) * scale), None, None


class QuantizedLinear(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = QuantizedWeight.of(weight)
        self.adapter = nn.Sequential(nn.Linear(weight.shape[1], 2, bias=False), nn.Linear(2, len(weight), bias=False))

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = Dequantized.apply(x, self.weight, self.weight.scale)
        total: Tensor = product + self.adapter(x)
        return total


def quantized(replace: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """A small Llama, frozen, whose matrices are replaced."""
    model = LLAMA.make_model().requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        for name, module in list(model.named_modules()):
            if isinstance(module, nn.Linear) and "lm_head" not in name:
                model.set_submodule(name, replace(module))
    return model


def test_adapters_over_quantized_weights_get_every_bit_of_plain_torch(job: str) -> None:
    build = partial(quantized, lambda module: QuantizedLinear(module.weight.detach()))
    for ours, theirs in assert_trains_alike(build, job):
        compare.assert_same_bits(copy.deepcopy(ours), theirs)
        assert all(unit["is_frozen"] for unit in units(job) if unit["name"].endswith(".frozen"))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("was_used", [False, True], ids=["new", "used"])
def test_adapters_over_bitsandbytes_get_every_bit_of_plain_torch(bits: int, was_used: bool, job: str) -> None:
    library = pytest.importorskip("bitsandbytes")

    def replaced(module: nn.Linear) -> nn.Module:
        make = partial(library.nn.Linear4bit, quant_type="nf4", compute_dtype=torch.float32)
        if bits == 8:
            make = partial(library.nn.Linear8bitLt, has_fp16_weights=False)
        made: nn.Module = make(module.in_features, module.out_features, bias=False)
        made.load_state_dict(module.state_dict())
        return made.requires_grad_(False).to("cpu")

    def build() -> nn.Module:
        base = quantized(replaced)
        setattr(base, f"is_loaded_in_{bits}bit", True)
        model: nn.Module = adapted(base)
        if was_used:
            LLAMA.loss(model, LLAMA.make_batch(9))
        return model

    for ours, theirs in assert_trains_alike(build, job):
        copies = copy.deepcopy(ours).merge_and_unload(), copy.deepcopy(theirs).merge_and_unload()
        compare.assert_same_bits(*copies)


class LateWeight(nn.Parameter):
    """As bitsandbytes' before model.to("cpu")."""

    bnb_quantized = False


@pytest.mark.parametrize(
    ("weight", "sentence"),
    [
        (nn.Parameter(TwoTensor(torch.ones(2, 2), torch.ones(2, 2)), False), r"0\.weight is a .*two_tensor\.TwoTensor"),
        (LateWeight(torch.ones(2, 2), False), r'0\.weight is not quantized yet: call model\.to\("cpu"\)'),
    ],
    ids=["in-other-tensors", "not-quantized-yet"],
)
def test_a_base_that_cannot_be_kept_is_refused_by_name(weight: nn.Parameter, sentence: str, job: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    model[0].weight = weight
    with pytest.raises(tierd.Error, match=sentence):
        initialize(model, sgd(model), job)
