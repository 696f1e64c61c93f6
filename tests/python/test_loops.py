"""What training loops do with gradients and weights beside backward and step: the bits of plain torch, or a sentence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import compare
import tierd.torch
from training import initialize, update


class Model(nn.Module):
    """Two blocks, and a part that is not used in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(2))
        self.rare = nn.Linear(6, 6)
        self.head = nn.Linear(6, 1)

    def forward(self, number: int) -> Tensor:
        x = torch.linspace(-1, number, 24).view(4, 6)
        for block in self.blocks:
            x = block(x)
        if number % 2:
            x = self.rare(x)
        loss: Tensor = self.head(x).square().mean()
        return loss


def make() -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(5)
    model = Model()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.fixture
def both(job: str) -> Iterator[list[tuple[Model, torch.optim.Optimizer]]]:
    """The same with tierd and without; in the end they have the same bits."""
    ours, theirs = make(), make()
    initialize(*ours, job)
    yield [ours, theirs]
    compare.assert_same_bits(ours[0], theirs[0])
    assert tierd.torch.job_of(ours[0]).core.leases() == 0


@pytest.fixture
def ours(job: str) -> tuple[Model, torch.optim.Optimizer]:
    """With tierd, before it is trained."""
    made = make()
    initialize(*made, job)
    return made


def step(model: Model, optimizer: torch.optim.Optimizer, number: int = 0) -> None:
    update(model(number), optimizer)


# ---- Gradients that are given up


def to_none(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = None


def deleted(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        del parameter.grad


def by_the_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()


def by_the_model(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.zero_grad()


def to_zeros(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.zero_grad(set_to_none=False)


@pytest.mark.parametrize("give_up", [to_none, deleted, by_the_optimizer, by_the_model, to_zeros])
def test_gradients_that_are_given_up_do_not_count(
    both: list[tuple[Model, torch.optim.Optimizer]], give_up: Callable[[nn.Module, torch.optim.Optimizer], None]
) -> None:
    for model, optimizer in both:
        for number in range(4):
            model(7 - number).backward()
            model(number).backward()
            if number == 1:
                give_up(model, optimizer)
                model(9).backward()
            optimizer.step()
            # As the Trainer of transformers does.
            give_up(model, optimizer)


def test_a_part_of_the_gradients_cannot_be_given_up(ours: tuple[Model, torch.optim.Optimizer]) -> None:
    model, optimizer = ours
    before = model.state_dict()
    model(1).backward()
    model.blocks.zero_grad()
    with pytest.raises(
        tierd.Error, match=r"gradient of blocks\.0\.0\.weight was set to None .*, or none\. Call zero_grad"
    ):
        optimizer.step()
    model.zero_grad()
    compare.assert_same_bits(model, before)
    step(model, optimizer)


def test_one_of_several_optimizers_cannot_give_its_gradients_up(job: str) -> None:
    model = make()[0]
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.blocks, model.rare, model.head)]
    tierd.torch.initialize(model, optimizers, job=job)
    model(1).backward()
    optimizers[0].zero_grad()
    with pytest.raises(tierd.Error, match=r"gradient of blocks\.0\.0\.weight was set to None"):
        for optimizer in optimizers:
            optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad()
    model(1).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def test_several_optimizers_cannot_take_turns(job: str) -> None:
    model = make()[0]
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.blocks, model.rare, model.head)]
    tierd.torch.initialize(model, optimizers, job=job)
    model(1).backward()
    optimizers[0].step()
    with pytest.raises(
        tierd.Error, match=r"backward\(\) after step\(\) of SGD, and before that of the other optimizers"
    ):
        model(1).backward()
    for optimizer in optimizers[1:]:
        optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad()
    model(1).backward()
    for optimizer in optimizers:
        optimizer.step()


# ---- Gradients that are set, changed or looked at


def test_gradients_may_be_set_instead_of_a_backward(both: list[tuple[Model, torch.optim.Optimizer]]) -> None:
    for model, optimizer in both:
        for number in range(4):
            parameters = list(model.parameters())
            gradients = torch.autograd.grad(model(number), parameters, allow_unused=True)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            if number == 3:
                # What was set is a part of what is summed.
                model(2).backward()
            optimizer.step()
            optimizer.zero_grad()


def test_gradients_that_were_set_may_be_given_up(both: list[tuple[Model, torch.optim.Optimizer]]) -> None:
    for model, optimizer in both:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.zero_grad()
        step(model, optimizer)


def test_a_gradient_that_the_daemon_has_cannot_be_set(ours: tuple[Model, torch.optim.Optimizer]) -> None:
    model, optimizer = ours
    model(1).backward()
    with pytest.raises(tierd.Error, match=r"gradient of head\.bias is in the daemon already, and cannot be set"):
        model.head.bias.grad = torch.ones(1)
    optimizer.step()


def test_hooks_see_gradients_and_change_them(both: list[tuple[Model, torch.optim.Optimizer]]) -> None:
    """Also those that come after initialize(), which has hooks of its own."""
    seen: list[list[float]] = []

    def clamp(parameter: Tensor) -> None:
        assert parameter.grad is not None
        seen[-1].append(parameter.grad.norm().item())
        parameter.grad.clamp_(-0.1, 0.1)

    def look(parameter: Tensor) -> None:
        assert parameter.grad is not None
        seen[-1].append(parameter.grad.norm().item())

    for model, optimizer in both:
        seen.append([])
        handles = [model.head.weight.register_post_accumulate_grad_hook(hook) for hook in (clamp, look)]
        model.rare.weight.register_hook(lambda gradient: gradient * 3)
        for number in range(4):
            step(model, optimizer, number)
        handles[0].remove()
        step(model, optimizer)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 9


def test_who_looks_at_a_gradient_after_backward_is_told_where_it_is(ours: tuple[Model, torch.optim.Optimizer]) -> None:
    model, optimizer = ours
    assert model.head.weight.grad is None
    model(1).backward()
    gradient = model.head.weight.grad
    assert gradient is not None
    assert gradient.shape == (1, 6)
    assert "the gradient of head.weight, which is in the daemon" in repr(gradient)
    with pytest.raises(tierd.Error, match=r"gradient of head\.weight is in the daemon .*look at gradients in hooks"):
        gradient.norm()
    optimizer.step()
    assert model.head.weight.grad is None


@pytest.mark.parametrize("how", ["step", "zero_grad"])
def test_a_step_within_backward_is_refused(both: list[tuple[Model, torch.optim.Optimizer]], how: str) -> None:
    for model, optimizer in both:
        hook = model.head.weight.register_post_accumulate_grad_hook(lambda _, own=optimizer: getattr(own, how)())
        if model is both[0][0]:
            with pytest.raises(tierd.Error, match=r"within backward\(\), as by a hook of a parameter"):
                model(1).backward()
            optimizer.zero_grad()
        hook.remove()
        step(model, optimizer)


def test_weights_may_be_looked_at_within_backward(both: list[tuple[Model, torch.optim.Optimizer]]) -> None:
    """Their unit is there for that pass, and what is looked at in it does not take it away."""
    seen: list[list[float]] = []
    for model, optimizer in both:
        seen.append([])
        weight = model.get_parameter("blocks.1.0.weight")

        def look(*_: Tensor, own: Tensor = weight, into: list[float] = seen[-1]) -> None:
            into.append(own.norm().item())

        # The first gradient of the block's output, before any of its weights was used.
        model.blocks[1].register_forward_hook(lambda *arguments, hook=look: arguments[2].register_hook(hook) and None)
        for number in range(2):
            step(model, optimizer, number)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 2


# ---- Errors in the middle


def in_forward(model: Model, error: BaseException) -> torch.utils.hooks.RemovableHandle:
    def fails(*arguments: object) -> None:
        raise error

    return model.blocks[1].register_forward_pre_hook(fails)


def in_backward(model: Model, error: BaseException) -> torch.utils.hooks.RemovableHandle:
    def fails(gradient: Tensor) -> None:
        raise error

    handle: torch.utils.hooks.RemovableHandle = model.head.weight.register_hook(fails)
    return handle


def test_an_interrupted_forward_leaves_no_lease_when_another_one_begins(
    both: list[tuple[Model, torch.optim.Optimizer]],
) -> None:
    for model, optimizer in both:
        hook = in_forward(model, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            model(1)
        hook.remove()
        with torch.no_grad():
            model(1)
        if model is both[0][0]:
            assert tierd.torch.job_of(model).core.leases() == 0
        step(model, optimizer, 1)


@pytest.mark.parametrize("where", [in_forward, in_backward])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError()], ids=["interrupt", "error"])
def test_training_goes_on_after_an_error_in_the_middle(
    both: list[tuple[Model, torch.optim.Optimizer]],
    where: Callable[[Model, BaseException], torch.utils.hooks.RemovableHandle],
    error: BaseException,
) -> None:
    for model, optimizer in both:
        step(model, optimizer)
        model(1).backward()
        hook = where(model, error)
        with pytest.raises(type(error)):
            model(1).backward()
        hook.remove()
        optimizer.zero_grad()
        step(model, optimizer, 1)


def test_training_goes_on_after_a_thread_that_has_died_in_backward(
    both: list[tuple[Model, torch.optim.Optimizer]],
) -> None:
    for model, optimizer in both:
        step(model, optimizer)
        hook = in_backward(model, ValueError())

        def die(model: Model = model) -> None:
            with pytest.raises(ValueError):
                model(1).backward()

        thread = threading.Thread(target=die)
        thread.start()
        thread.join()
        hook.remove()
        optimizer.zero_grad()
        step(model, optimizer, 1)


Begin = Callable[[Callable[[], object]], "Future[object]"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins something in a thread that lives on, as those in which autograd calls hooks of other devices do."""
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit


def test_training_goes_on_after_a_backward_that_has_failed_in_a_thread_that_lives_on(
    both: list[tuple[Model, torch.optim.Optimizer]], begin: Begin
) -> None:
    for model, optimizer in both:
        step(model, optimizer)
        begin(model(1).backward).result()
        hook = in_backward(model, ValueError())
        with pytest.raises(ValueError):
            begin(model(1).backward).result()
        hook.remove()
        optimizer.zero_grad()
        step(model, optimizer, 1)


def test_a_forward_ends_a_backward_that_has_failed_in_another_thread(
    both: list[tuple[Model, torch.optim.Optimizer]], begin: Begin
) -> None:
    for model, optimizer in both:
        step(model, optimizer)
        hook = in_backward(model, ValueError())
        with pytest.raises(ValueError):
            begin(model(1).backward).result()
        hook.remove()
        if model is both[0][0]:
            assert tierd.torch.job_of(model).core.leases() > 0
        with torch.no_grad():
            model(1)
        if model is both[0][0]:
            assert tierd.torch.job_of(model).core.leases() == 0
        optimizer.zero_grad()
        step(model, optimizer, 1)


def test_a_forward_leaves_a_backward_in_another_thread_alone(
    both: list[tuple[Model, torch.optim.Optimizer]], begin: Begin
) -> None:
    for model, optimizer in both:
        is_in_backward, may_go_on = threading.Event(), threading.Event()

        def waits(gradient: Tensor, here: threading.Event = is_in_backward, then: threading.Event = may_go_on) -> None:
            here.set()
            then.wait()

        hook = model.blocks[0].get_parameter("0.weight").register_hook(waits)
        backward = begin(model(1).backward)
        is_in_backward.wait()
        with torch.no_grad():
            model(1)
        may_go_on.set()
        backward.result()
        hook.remove()
        optimizer.step()
        optimizer.zero_grad()


class Recomputing(nn.Module):
    """A unit of whose gradients some come in a backward pass inside of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.second, self.first(x), use_reentrant=True)
        return result


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Recomputing() for _ in range(2))
        self.first = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def train_nested(model: Nested, optimizer: torch.optim.Optimizer, is_failing: bool) -> None:
    batch = torch.linspace(-1, 1, 24).view(4, 6)
    update(model(batch), optimizer)
    if is_failing:
        hook = model.blocks[0].get_parameter("second.weight").register_hook(failing)
        with pytest.raises(ValueError):
            model(batch).backward()
        hook.remove()
        optimizer.zero_grad()
    update(model(batch), optimizer)


@pytest.mark.parametrize("is_failing", [False, True], ids=["well", "failing"])
def test_a_backward_inside_of_another_one_is_a_part_of_it(
    job: str, monkeypatch: pytest.MonkeyPatch, is_failing: bool
) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(Nested())
    ours, plain = [(model, torch.optim.SGD(model.parameters(), lr=0.1)) for model in models]
    initialize(*ours, job)
    membership = tierd.torch.job_of(ours[0]).membership
    push, pushed = membership.push, []

    def count(unit: int, *absent: Any) -> None:
        pushed.append(unit)
        push(unit, *absent)

    monkeypatch.setattr(membership, "push", count)
    train_nested(*ours, is_failing)
    train_nested(*plain, is_failing)
    if not is_failing:
        assert len(pushed) == 2 * len(set(pushed)) == 6
    assert membership.core.leases() == 0
    compare.assert_same_bits(*models)


def failing(gradient: Tensor) -> None:
    raise ValueError


@pytest.mark.parametrize("name", ["gradients", "push"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("is_done", [True, False], ids=["after", "before"])
def test_an_interrupt_at_a_call_of_the_daemon_costs_no_gradient(
    both: list[tuple[Model, torch.optim.Optimizer]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    is_first: bool,
    is_done: bool,
) -> None:
    """Python raises Ctrl-C when a call that took a while has come back: what it did is done, and nobody has its result."""
    (model, optimizer), (plain, plain_optimizer) = both
    step(model, optimizer)
    membership = tierd.torch.job_of(model).membership
    call = getattr(membership, name)
    calls = iter([is_first, True])

    def interrupted(*arguments: object) -> object:
        is_it = next(calls)
        if is_done or not is_it:
            result = call(*arguments)
        if not is_it:
            return result
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(membership, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            model(1).backward()
    optimizer.zero_grad()
    step(model, optimizer, 1)
    step(plain, plain_optimizer)
    step(plain, plain_optimizer, 1)
