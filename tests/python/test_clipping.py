"""Clipping by the global norm, in all the ways in which trainers call it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_ as imported_before

import tierd
import tierd.torch
from compare import assert_same_bits

MOST = 0.05


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))


def train(how: str, job: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Norms before clipping, and what five steps make of the model."""
    option = MOST if how == "option" else 0.0
    network = model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    tierd.torch.initialize(network, optimizer, job=job, max_grad_norm=option)
    norms = []
    for step in range(5):
        inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
        # What is frozen between two steps has no gradient to clip.
        network.get_parameter("2.bias").requires_grad_(step != 3)
        network(inputs).square().mean().backward()
        if how == "torch":
            norm = torch.nn.utils.clip_grad_norm_(network.parameters(), MOST)
        elif how == "tierd":
            norm = tierd.torch.clip_grad_norm_(network.parameters(), MOST)
        optimizer.step()
        optimizer.zero_grad()
        if how != "option":
            norms.append(norm.item())
    values = network.state_dict()
    tierd.torch.close(network)
    return norms, values


@pytest.mark.parametrize("how", ["torch", "tierd"])
def test_a_call_before_the_step_clips_as_the_option_does(how: str) -> None:
    norms, called = train(how, f"called-{how}")
    _, by_option = train("option", f"option-{how}")
    assert all(norm > MOST for norm in norms)
    assert_same_bits(called, by_option)


def test_the_norm_is_that_of_the_gradients() -> None:
    norms, _ = train("tierd", "norm")
    plain = model()
    plain(torch.randn(4, 8, generator=torch.Generator().manual_seed(0))).square().mean().backward()
    assert norms[0] == pytest.approx(float(imported_before(plain.parameters(), MOST)), rel=1e-6)


def test_an_infinite_norm_clips_nothing_and_tells_the_norm() -> None:
    """As a trainer asks for the norm alone."""
    network, plain = model(), model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    tierd.torch.initialize(network, optimizer, job="infinite", max_grad_norm=MOST)
    for each, steps in ((network, optimizer), (plain, torch.optim.SGD(plain.parameters(), lr=0.1))):
        each(torch.ones(1, 8)).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(each.parameters(), float("inf"))
        assert "known after optimizer.step()" in repr(norm) or each is plain
        steps.step()
    assert repr(norm).startswith("tensor(")
    assert_same_bits(network, plain)
    assert norm.item() > MOST


def test_what_is_none_of_tierds_is_clipped_by_torch() -> None:
    train("tierd", "others")
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    tierd.torch.initialize(network, optimizer, job="others-2")
    plain = model()
    plain(torch.ones(1, 8)).sum().backward()
    torch.nn.utils.clip_grad_norm_(plain.parameters(), MOST)
    assert (
        float(torch.cat([item.grad.flatten() for item in plain.parameters() if item.grad is not None]).norm()) <= MOST
    )
    tierd.torch.close(network)
    assert torch.nn.utils.clip_grad_norm_ is imported_before


def test_a_function_that_was_imported_before_says_so_and_does_not_do_nothing() -> None:
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    tierd.torch.initialize(network, optimizer, job="imported")
    network(torch.ones(1, 8)).sum().backward()
    with pytest.raises(tierd.Error, match=r"the gradient of 0\.weight is in the daemon already"):
        imported_before(network.parameters(), MOST)
    optimizer.step()
    optimizer.zero_grad()
    network.zero_grad()


def test_parts_and_other_norms_are_refused() -> None:
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    tierd.torch.initialize(network, optimizer, job="parts")
    network(torch.ones(1, 8)).sum().backward()
    with pytest.raises(tierd.Error, match="all trained parameters"):
        torch.nn.utils.clip_grad_norm_(network[0].parameters(), MOST)  # type: ignore[index]
    with pytest.raises(tierd.Error, match="2-norm"):
        torch.nn.utils.clip_grad_norm_(network.parameters(), MOST, norm_type=1)
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), MOST)
    with pytest.raises(tierd.Error, match="after optimizer"):
        norm.item()
    optimizer.step()
    assert norm.item() > 0


def test_a_step_that_is_dropped_takes_its_clipping_with_it() -> None:
    network, plain = model(), model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    tierd.torch.initialize(network, optimizer, job="unclipped")
    network(torch.ones(1, 8)).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1e-6)
    optimizer.zero_grad()
    for each, steps in ((network, optimizer), (plain, torch.optim.SGD(plain.parameters(), lr=0.1))):
        each(torch.ones(1, 8)).sum().backward()
        steps.step()
    values = network.state_dict()
    assert_same_bits(values, plain)
    assert torch.isnan(norm)
