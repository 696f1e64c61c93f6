"""The references and comparisons without tierd: what they call equal is, what differs is named."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import pytest
import torch

import compare
import formulas
from graph_nodes import NODES
from graphs import Graph, run
from models import BY_NAME, CASES, Case
from reference import Plan, clip, exact, plain

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)
# What all cases have that matters to an optimizer: test_models compares AdamW of each of them with both.
SOME_CASES = pytest.mark.parametrize("case", [BY_NAME[name] for name in ("twice", "branches", "gpt2")], ids=str)


@EVERY_CASE
def test_some_parameters_of_a_case_have_no_gradient_where_it_says_so(case: Case) -> None:
    model = case.make_model()
    case.loss(model, case.make_batch(0)).backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert bool(without) == case.skips, without


@SOME_CASES
def test_the_formula_of_sgd_has_the_bits_of_torch(case: Case) -> None:
    theirs = plain(Plan(case), partial(torch.optim.SGD, lr=0.05, weight_decay=0.01))
    ours = exact(Plan(case), lambda name: formulas.Sgd(0.05, weight_decay=0.01))
    compare.assert_same_bits(ours.state, theirs.state)


@SOME_CASES
@pytest.mark.parametrize("nesterov", [False, True], ids=["plain", "nesterov"])
def test_the_formula_of_momentum_is_that_of_torch(case: Case, nesterov: bool) -> None:
    theirs = plain(Plan(case), partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=nesterov))
    ours = exact(Plan(case), lambda name: formulas.Sgd(0.05, momentum=0.9, nesterov=nesterov))
    compare.assert_close(ours.state, theirs.state, 1e-6)


@SOME_CASES
@pytest.mark.parametrize("decoupled", [True, False], ids=["adamw", "adam"])
def test_the_formula_of_adam_is_that_of_torch(case: Case, decoupled: bool) -> None:
    plan = Plan(case, max_grad_norm=1.0)
    # Decay in the gradient makes of the zero gradient of a bias of attention's keys a step of full size.
    decay = 0.1 if decoupled else 0.0
    options = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": decay}
    optimizer = torch.optim.AdamW if decoupled else torch.optim.Adam
    theirs = plain(plan, lambda parameters: optimizer(parameters, **options))  # type: ignore[arg-type]
    ours = exact(plan, lambda name: formulas.AdamW(1e-3, (0.9, 0.95), 1e-6, decay, decoupled))
    compare.assert_losses_close(ours.losses, theirs.losses, 1e-5)
    compare.assert_close(ours.state, theirs.state, 1e-6)


def test_micro_batches_are_summed_as_torch_sums_them() -> None:
    plan = Plan(CASES[0], micro_batches=3)
    theirs = plain(plan, partial(torch.optim.SGD, lr=0.05))
    ours = exact(plan, lambda name: formulas.Sgd(0.05))
    compare.assert_same_bits(ours.state, theirs.state)


def test_fma_rounds_once() -> None:
    generator = torch.Generator().manual_seed(1)
    a, b, c = (torch.randn(3000, generator=generator) for _ in range(3))
    c[::2] = -(a * b)[::2]
    c[1::4] *= 1e-4
    for index, value in enumerate(formulas.fma(a, b, c)):
        truth = Fraction(a[index].item()) * Fraction(b[index].item()) + Fraction(c[index].item())
        error = abs(Fraction(value.item()) - truth)
        for beside in (-torch.inf, torch.inf):
            other = torch.nextafter(value, torch.tensor(beside)).item()
            assert error <= abs(Fraction(other) - truth)


def test_bf16_rounds_half_away_from_zero() -> None:
    halves = torch.tensor([0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001]).to(torch.int32).view(torch.float32)
    up = torch.tensor([0x3F81, 0x3F82, 0x3F80, 0x3F81]).to(torch.int16).view(torch.bfloat16)
    compare.assert_same_bits(
        {"up": formulas.away_from_zero(halves), "down": formulas.away_from_zero(-halves)},
        {"up": up, "down": -up},
    )


def test_clipping_takes_the_norm_of_fp64() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(100_003)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.1)
    expected = (2 * 100_003 * float(torch.tensor(0.1)) ** 2) ** 0.5
    assert clip(parameters, 1.0) == pytest.approx(expected, rel=1e-12)
    assert float(parameters[1].grad[7]) == pytest.approx(0.1 / expected, rel=1e-6)  # type: ignore[index]


def test_a_difference_is_named_with_its_element_and_both_values() -> None:
    ours = {"a": torch.zeros(3), "b": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    theirs = {"a": torch.zeros(3), "b": torch.tensor([[1.0, 2.0], [3.5, 4.0]])}
    text = compare.difference(ours, theirs)
    assert text == "b[1, 0] is 3.0, expected 3.5; 1 of 4 elements differ, by 0.5 at most; 1 of 2 tensors differ"
    assert compare.difference(ours, theirs, 0.5) is None
    assert compare.difference({"a": ours["a"]}, theirs) == "b is missing in the first"
    assert compare.difference({"a": -ours["a"], "b": theirs["b"]}, theirs) is not None


def test_random_graphs_repeat_themselves_and_have_every_kind_of_module() -> None:
    kinds: set[str] = set()
    for seed in range(60):
        graph = Graph.of(seed)
        kinds.update(type(module).__name__ for module in graph.make_model().modules())
        if seed % 6 == 0:
            compare.assert_same_bits(run(graph), run(graph))
    assert {node.__name__ for node in NODES.values()} <= kinds
    assert {
        "Scale",
        "Views",
        "InPlace",
        "Lookup",
        "Recurrent",
        "Attention",
        "Custom",
        "Slope",
        "Mixed",
    } <= kinds
