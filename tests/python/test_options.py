"""What a script may say otherwise when it goes on with a job."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tierd.torch
from conftest import Daemon


@pytest.fixture(autouse=True)
def _daemon(daemon: Daemon) -> None:
    """A daemon for each."""


def step(job: str, rate: float, most: float) -> torch.Tensor:
    """The weight after a step whose gradient is (3, 4)."""
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    tierd.torch.initialize(model, optimizer, job=job, max_grad_norm=most)
    model(torch.tensor([3.0, 4.0])).sum().backward()
    optimizer.step()
    weight = model.state_dict()["weight"]
    tierd.torch.close(model)
    return weight


def test_a_job_goes_on_with_another_learning_rate_and_another_clipping() -> None:
    assert torch.allclose(step("rates", 0.5, 0.0), torch.tensor([[-1.5, -2.0]]))
    assert torch.allclose(step("rates", 0.1, 0.0), torch.tensor([[-1.8, -2.4]]))
    assert torch.allclose(step("rates", 1.0, 1.0), torch.tensor([[-2.4, -3.2]]), atol=1e-5)


def test_a_step_without_gradients_and_a_gradient_that_is_given_up_are_refused() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job="refused")
    with pytest.raises(tierd.Error, match=r"call loss\.backward\(\) before it"):
        optimizer.step()
    model(torch.ones(2)).sum().backward()
    with pytest.raises(tierd.Error, match="cannot be taken back"):
        optimizer.zero_grad()
    optimizer.step()
    tierd.torch.close(model)


def test_a_graph_of_an_earlier_step_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job="graphs")
    old = model(torch.ones(1, 4)).sum()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"has been modified by optimizer\.step"):
        old.backward()
    tierd.torch.close(model)


def test_a_weight_that_is_kept_holds_the_step_up_and_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job="kept")
    kept = model[0].weight.detach()
    model(torch.ones(1, 4)).sum().backward()
    with pytest.raises(tierd.Error, match=r"0\.weight"):
        optimizer.step()
    value = kept.clone()
    del kept
    optimizer.step()
    assert not torch.equal(model[0].weight.detach().clone(), value)
    tierd.torch.close(model)


def test_a_loss_that_is_not_finite_is_reported() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tierd.torch.initialize(model, optimizer, job="nonfinite")
    (model(torch.ones(1, 4)).sum() * float("nan")).backward()
    optimizer.step()
    with pytest.raises(tierd.Error, match="NaN|finite"):
        tierd.torch.job_of(model).finish()
    tierd.torch.close(model)
