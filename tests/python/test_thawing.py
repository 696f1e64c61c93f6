"""Parameters that are frozen, thawed or moved to other groups between steps, from the job's beginning or later, have the bits
of plain PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tierd.torch
from compare import assert_same_bits
from conftest import tierctl
from tierd import Error
from training import end, initialize, update

Optimizer = torch.optim.Optimizer
# Powers of two, whose products are exact: torch may add to them before it rounds, and tierd never does.
momentum = functools.partial(torch.optim.SGD, lr=2**-5, momentum=0.5, weight_decay=2**-3)


def make() -> nn.Sequential:
    """Blocks of two layers, of which a part may be frozen."""
    torch.manual_seed(3)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(4)), nn.Linear(8, 2)
    )


def layer(model: nn.Module, name: str) -> nn.Linear:
    found = model.get_submodule(name)
    assert isinstance(found, nn.Linear)
    return found


def steps(model: nn.Module, optimizer: Optimizer, before: Callable[[int], object], numbers: range) -> None:
    """What a user writes, with something done before each step."""
    for step in numbers:
        before(step)
        generator = torch.Generator().manual_seed(step)
        update(model(torch.randn(4, 8, generator=generator)).square().sum(), optimizer)


Change = Callable[[nn.Module, Optimizer, int], object]


def check_bits(make_optimizer: Callable[[nn.Module], Optimizer], change: Change, job: str, **options: Any) -> nn.Module:
    """Trains with tierd and without, and compares. The model that is on tierd."""
    results = []
    for is_ours in (True, False):
        model = make()
        change(model, torch.optim.SGD([torch.zeros(1)]), -1)
        optimizer = make_optimizer(model)
        if is_ours:
            model, optimizer = initialize(model, optimizer, job, **options)  # type: ignore[assignment]
        steps(model, optimizer, functools.partial(change, model, optimizer), range(9))
        results.append((model, optimizer.state_dict()))
    (ours, our_state), (theirs, their_state) = results
    assert_same_bits(ours.state_dict(), theirs.state_dict())
    for number, state in their_state["state"].items():
        if state.get("momentum_buffer") is not None:
            assert_same_bits(
                {"momentum": our_state["state"][number]["momentum_buffer"]}, {"momentum": state["momentum_buffer"]}
            )
    return ours


def test_what_is_frozen_for_some_steps_has_no_update_and_no_decay_and_keeps_its_moments(job: str) -> None:
    def change(model: nn.Module, optimizer: Optimizer, step: int) -> None:
        model.get_submodule("0").requires_grad_(not 2 <= step < 6)  # a whole unit
        layer(model, "1.2").weight.requires_grad_(step not in (3, 4))  # a part of one

    check_bits(lambda model: momentum(model.parameters()), change, job)


def thaw_by_blocks(model: nn.Module, optimizer: Optimizer, step: int) -> None:
    """From the last block to the first, as fine-tuning does."""
    for block in range(4):
        model.get_submodule(str(block)).requires_grad_(step >= 2 * (3 - block))
    layer(model, "3.0").requires_grad_(step >= 4)  # a part of a block


@pytest.mark.parametrize("may_thaw", [True, ["0", "1", "2", "3.0.weight", "3.0.bias", "3.2"]], ids=["all", "names"])
def test_what_was_frozen_at_first_is_trained_from_when_it_is_thawed(may_thaw: Any, job: str) -> None:
    check_bits(lambda model: momentum(model.parameters()), thaw_by_blocks, job, may_thaw=may_thaw)


def test_an_optimizer_of_the_trainers_own_has_what_is_thawed(job: str) -> None:
    check_bits(lambda model: torch.optim.RMSprop(model.parameters(), lr=1e-3), thaw_by_blocks, job, may_thaw=True)


def grow(model: nn.Module, optimizer: Optimizer, step: int) -> None:
    """Each block gets a group, with a learning rate of its own, when it is thawed."""
    thaw_by_blocks(model, optimizer, 4 if step >= 4 else 2)
    if step == 2:
        optimizer.add_param_group({"params": layer(model, "3.0").parameters(), "lr": 2**-4})
        optimizer.add_param_group({"params": [layer(model, "2.0").weight], "lr": 2**-6, "momentum": 0.25})
    if step == 4:
        others = (item for name in ("1", "2") for item in model.get_submodule(name).parameters())
        known = {id(item) for group in optimizer.param_groups for item in group["params"]}
        optimizer.add_param_group({"params": [item for item in others if id(item) not in known], "weight_decay": 0.0})
    if step > 4:
        optimizer.param_groups[-1]["lr"] *= 0.5


def test_a_group_is_added_with_what_is_thawed(job: str) -> None:
    def first(model: nn.Module) -> Optimizer:
        layer(model, "2.0").requires_grad_(False)
        return momentum([item for item in model.parameters() if item.requires_grad])

    def change(model: nn.Module, optimizer: Optimizer, step: int) -> None:
        if step >= 0:
            grow(model, optimizer, step)
        else:
            model.requires_grad_(False)
            for name in ("3.2", "4"):
                model.get_submodule(name).requires_grad_(True)
        for name in ("1", "2") if step < 4 else ():
            model.get_submodule(name).requires_grad_(False)

    check_bits(first, change, job, may_thaw=True)


def two_groups(model: nn.Module) -> Optimizer:
    first = [*model.get_submodule("0").parameters(), *model.get_submodule("1").parameters()]
    others = [item for item in model.parameters() if all(item is not own for own in first)]
    groups: list[dict[str, Any]] = [
        {"params": first},
        {"params": others, "lr": 2**-7, "weight_decay": 0.0, "momentum": 0.25},
    ]
    return momentum(groups)


def take(optimizer: Optimizer, parameter: torch.Tensor, group: int | None) -> None:
    """Puts the parameter into the group, or into none."""
    for other in optimizer.param_groups:
        other["params"][:] = [own for own in other["params"] if own is not parameter]
    if group is not None:
        optimizer.param_groups[group]["params"].append(parameter)


def move(model: nn.Module, optimizer: Optimizer, step: int) -> None:
    """A whole unit, a part of one, and back."""
    if step == 2:
        for parameter in model.get_submodule("0").parameters():
            take(optimizer, parameter, 1)
    if step in (4, 6):
        take(optimizer, layer(model, "1.2").weight, 1 if step == 4 else 0)
        take(optimizer, layer(model, "2.0").weight, 0 if step == 4 else 1)


@pytest.mark.parametrize("early_updates", [False, True])
def test_a_parameter_that_moves_to_another_group_has_its_rates(early_updates: bool, job: str) -> None:
    check_bits(two_groups, move, job, early_updates=early_updates)


def test_an_optimizer_of_the_trainers_own_has_what_is_moved(job: str) -> None:
    def rmsprop(model: nn.Module) -> Optimizer:
        groups = two_groups(model).param_groups
        return torch.optim.RMSprop([{"params": group["params"], "lr": group["lr"]} for group in groups])

    check_bits(rmsprop, move, job)


def test_what_is_thawed_moves_to_a_group_that_was_there(job: str) -> None:
    def first(model: nn.Module) -> Optimizer:
        return momentum([item for item in model.parameters() if item.requires_grad])

    def change(model: nn.Module, optimizer: Optimizer, step: int) -> None:
        weight = layer(model, "3.0").weight
        weight.requires_grad_(step >= 2)
        if step == 2:
            optimizer.add_param_group({"params": [weight], "lr": 2**-6})
        if step == 4:
            take(optimizer, weight, 0)
            take(optimizer, layer(model, "2.0").weight, 1)

    check_bits(first, change, job, may_thaw=["3.0.weight"])


def test_a_parameter_that_is_in_no_group_any_more_stops_the_step(job: str) -> None:
    model = make()
    optimizer = two_groups(model)
    initialize(model, optimizer, job)
    weight = layer(model, "0.0").weight
    take(optimizer, weight, None)
    with pytest.raises(Error, match=r"a parameter \[8, 8\] was taken out of its group"):
        steps(model, optimizer, lambda step: None, range(1))
    take(optimizer, weight, 1)
    optimizer.step()
    optimizer.zero_grad()
    take(optimizer, weight.requires_grad_(False), None)
    steps(model, optimizer, lambda step: None, range(1))


class Scalars(nn.Module):
    """As many parameters as a job has groups."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for i in range(count):
            self.register_parameter(f"of{i}", nn.Parameter(torch.tensor(1.0 + i)))

    def forward(self) -> torch.Tensor:
        return torch.stack([item * item for item in self.parameters()]).sum()


def by_itself(model: nn.Module) -> Optimizer:
    """Each parameter in a group of its own, with a learning rate of its own."""
    groups = [{"params": [item], "lr": (1 + i) / 4096} for i, item in enumerate(model.parameters())]
    return torch.optim.SGD(groups, lr=1.0)


def test_each_of_1024_groups_has_its_own_learning_rate(job: str) -> None:
    ours, theirs = Scalars(1024), Scalars(1024)
    optimizer, other = by_itself(ours), by_itself(theirs)
    initialize(ours, optimizer, job)
    for step in range(3):
        for model, chosen in ((ours, optimizer), (theirs, other)):
            chosen.param_groups[1000]["lr"] = 0.125 * step
            update(model(), chosen)
    # Of one gather: state_dict() has one for each parameter.
    values, others = (torch.stack(list(model.parameters())) for model in (ours, theirs))
    assert_same_bits({"values": values}, {"values": others})
    del values
    with pytest.raises(Error, match="1025 groups.*1024 at most"):
        initialize((model := Scalars(1025)), by_itself(model), "many")


def test_what_cannot_be_trained_stops_the_backward_pass(job: str) -> None:
    model = make()
    model.get_submodule("1").requires_grad_(False)
    layer(model, "2.0").requires_grad_(False)
    optimizer = torch.optim.SGD([item for item in model.parameters() if item.requires_grad], lr=0.1)
    initialize(model, optimizer, job, may_thaw=["2"])
    remedies = {
        "1.2": r"1\.2\.weight was frozen .*may_thaw=\['1\.2\.weight'\]",
        "2.0": r"2\.0\.weight .*add_param_group",
    }
    for name, remedy in remedies.items():
        weight = layer(model, name).weight.requires_grad_(True)
        with pytest.raises(Error, match=remedy):
            model(torch.ones(4, 8)).sum().backward()
        weight.requires_grad_(False)
    for weight in (layer(model, "1.0").weight, torch.ones(1, requires_grad=True)):
        with pytest.raises(Error, match=r"no room to train it.*may_thaw"):
            optimizer.add_param_group({"params": [weight]})
    assert len(optimizer.param_groups) == 1
    optimizer.zero_grad()
    steps(model, optimizer, lambda step: None, range(2))


def test_names_that_cannot_be_thawed_are_refused(job: str) -> None:
    model = make()
    model.register_parameter("codes", nn.Parameter(torch.arange(4), requires_grad=False))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    for name, why in (("5", "no such parameter"), ("0.0.wei", "no such parameter"), ("codes", "it is torch.int64")):
        with pytest.raises(Error, match=f"may_thaw: '{name}' cannot be trained: .*{why}"):
            initialize(model, optimizer, job, may_thaw=[name])


def test_an_optimizer_that_runs_in_the_trainer_has_the_groups_that_it_had(job: str) -> None:
    model = make()
    model.get_submodule("0").requires_grad_(False)
    optimizer = torch.optim.RMSprop([item for item in model.parameters() if item.requires_grad])
    with pytest.raises(Error, match="4 parameters that are in no group of RMSprop"):
        initialize(model, optimizer, job, may_thaw=True)
    initialize(model, optimizer, job)
    with pytest.raises(Error, match="runs in the trainer"):
        optimizer.add_param_group({"params": list(model.get_submodule("0").parameters())})


def test_a_unit_that_is_frozen_is_let_go_before_the_end_of_backward(job: str) -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    initialize(model, optimizer, job)
    for name in ("1", "2", "3.0"):
        model.get_submodule(name).requires_grad_(False)
    held: list[int] = []
    hold = layer(model, "0.2").weight.register_post_accumulate_grad_hook(
        lambda item: held.append(tierd.torch.job_of(model).core.leases())
    )
    model(torch.ones(4, 8)).sum().backward()
    hold.remove()
    # Its own unit alone.
    assert held == [1]
    optimizer.step()


def thawing(job: str, passes: int, fails_after: int | None = None) -> nn.Module:
    """A script that thaws between passes, and adds a group; it may end in the middle of the last one."""
    model = make()
    model.get_submodule("0").requires_grad_(False)
    optimizer: Optimizer = momentum([item for item in model.parameters() if item.requires_grad])
    initialize(model, optimizer, job, may_thaw=["0"])
    model.get_submodule("1").requires_grad_(False)
    data = [torch.full((4, 8), float(i)) for i in range(4)]
    for number in range(passes):
        if number == 1:
            model.get_submodule("0").requires_grad_(True)
            optimizer.add_param_group({"params": model.get_submodule("0").parameters(), "lr": 2**-6})
        if number == 2:
            optimizer.param_groups[-1]["lr"] = 2**-7
        for i, batch in enumerate(tierd.torch.resumable(data)):
            if (number, i) == (2, 1):
                model.get_submodule("1").requires_grad_(True)
            if number == passes - 1 and i == fails_after:
                return model
            update(model(batch).square().sum(), optimizer)
    return model


def test_a_script_that_goes_on_has_what_was_thawed_and_the_groups_that_were_added(job: str) -> None:
    model = thawing(job, 4)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    end(model, job)
    for passes, fails_after in ((2, 1), (3, 3)):
        tierd.torch.close(thawing(job, passes, fails_after))
    model = thawing(job, 4)
    assert_same_bits(model.state_dict(), expected)


def moving(job: str, passes: int, fails_after: int | None = None) -> nn.Module:
    """A script that moves parameters in the middle of each pass, by what it finds; it may end in the last one."""
    model = make()
    optimizer = two_groups(model)
    initialize(model, optimizer, job)
    data = [torch.full((4, 8), float(i)) for i in range(4)]
    for number in range(passes):
        for i, batch in enumerate(tierd.torch.resumable(data)):
            if number == passes - 1 and i == fails_after:
                return model
            if i == 1:
                take(optimizer, optimizer.param_groups[0]["params"][0], 1)
            update(model(batch).square().sum(), optimizer)
    assert [len(group["params"]) for group in optimizer.param_groups] == [8 - passes, 10 + passes]
    return model


def test_a_script_that_goes_on_has_the_groups_of_the_jobs_step(job: str) -> None:
    model = moving(job, 3)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    end(model, job)
    tierd.torch.close(moving(job, 2, 3))
    model = moving(job, 3)
    assert_same_bits(model.state_dict(), expected)


def moved_again(job: str, goes_back: bool) -> dict[str, torch.Tensor]:
    """What comes of a pass in whose second step a parameter moves; after it the job goes back to the first."""
    model = make()
    optimizer = two_groups(model)
    initialize(model, optimizer, job, snapshots=1)
    batches = [torch.full((4, 8), float(i)) for i in range(4)]
    for done, batch in enumerate(tierd.torch.resumable(batches), 1):
        if batch[0, 0] == 1:
            take(optimizer, layer(model, "0.0").weight, 1)
        update(model(batch).square().sum(), optimizer)
        tierd.torch.job_of(model).finish()
        if done == 1:
            tierctl("snapshot", job, "there")
        if done == 2 and goes_back:
            tierctl("rollback", "--yes", "--force", job, "there")
    values = {name: value.clone() for name, value in model.state_dict().items()}
    end(model, job)
    return values


def test_what_moves_again_after_the_job_went_back_is_told_again(job: str) -> None:
    expected = moved_again(job, False)
    assert_same_bits(moved_again(job, True), expected)


def rolled_back(job: str, to: int | None) -> dict[str, torch.Tensor]:
    """What comes of two passes, of which the second trains a block more, and has one in another group; in it the job goes
    back to a step of the first."""
    model = make()
    optimizer: Optimizer = two_groups(model)
    initialize(model, optimizer, job, snapshots=1)
    data = [torch.full((4, 8), float(i)) for i in range(3)]
    done = 0
    for number in range(2):
        model.get_submodule("0").requires_grad_(number == 1)
        for parameter in model.get_submodule("1").parameters() if number == 1 else ():
            take(optimizer, parameter, 1)
        for batch in tierd.torch.resumable(data):
            update(model(batch).square().sum(), optimizer)
            done += 1
            tierd.torch.job_of(model).finish()
            if done == to:
                tierctl("snapshot", job, "there")
            if done == 4 and to is not None:
                tierctl("rollback", "--yes", "--force", job, "there")
    # What was done again, and the iteration that came to nothing.
    assert done == 6 + (0 if to is None else 4 - to + 1)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    end(model, job)
    return values


def test_a_job_that_goes_back_to_an_earlier_pass_trains_what_was_trained_in_each(job: str) -> None:
    expected = rolled_back(job, None)
    assert_same_bits(rolled_back(job, 2), expected)
