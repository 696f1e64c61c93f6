"""A model elsewhere has the parameters of a job's last step, all of the same one; several jobs are trained by one trainer."""

from __future__ import annotations

import copy
import errno
import gc
import io
import os
import threading
from typing import Any, TypeVar

import pytest
import torch
from torch import nn

import compare
import tierd.torch as tierd
import training
from conftest import Daemon, tierctl
from tierd import Error, _core
from tierd.torch.followed import Followed, read
from training import update

RATE = 0.25


class Model(nn.Module):
    """Of two formats, with a tied weight and a frozen one of integers."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.embedding = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(3))
        self.norm = nn.LayerNorm(width)
        self.codes = nn.Parameter(torch.arange(6, dtype=torch.int8).view(2, 3), requires_grad=False)
        self.head = nn.Linear(width, 16, bias=False)
        self.head.weight = self.embedding.weight
        self.to(torch.bfloat16)
        self.norm.float()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens)
        for block in self.blocks:
            values = block(values)
        result: torch.Tensor = self.head(self.norm(values.float()).bfloat16())
        return result


class Trainer:
    """Trains a model on tierd."""

    def __init__(self, job: str, model: nn.Module | None = None, **options: Any):
        torch.manual_seed(0)
        self.job = job
        self.model = Model() if model is None else model
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        training.initialize(self.model, self.optimizer, job, **options)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            tokens = torch.randint(0, 16, (2, 5))
            update(self.model(tokens).float().logsumexp(-1).sum(), self.optimizer)
        tierd.job_of(self.model).finish()


@pytest.fixture
def name(job: str) -> str:
    return job


Some = TypeVar("Some", bound=nn.Module)


def zeros(model: Some) -> Some:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def versions(model: nn.Module) -> list[int]:
    return [parameter._version for parameter in model.parameters()]


def test_a_follower_has_the_parameters_of_the_last_step_to_the_bit(name: str) -> None:
    trainer, model = Trainer(name), zeros(Model())
    with tierd.follow(model, job=name) as follower:
        assert follower.step is None
        for step in range(4):
            assert follower.refresh() == follower.step == step
            compare.assert_same_bits(model.state_dict(), trainer.model.state_dict())
            before = versions(model)
            assert follower.refresh() == step
            # What is not new is not read.
            assert versions(model) == before
            trainer.step()
    assert model.head.weight is model.embedding.weight
    with pytest.raises(Error, match="closed"):
        follower.refresh()


def test_a_refresh_ends_graphs_that_were_made_before(name: str) -> None:
    trainer, model = Trainer(name), Model()
    with tierd.follow(model, job=name) as follower:
        follower.refresh()
        loss = model(torch.zeros(1, 2, dtype=torch.long)).sum()
        trainer.step()
        follower.refresh()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_other_types_and_layouts_get_the_values_converted(name: str) -> None:
    trainer = Trainer(name)
    trainer.step()
    model = zeros(Model()).float()
    model.codes.data = torch.zeros(2, 3, dtype=torch.int8)
    weight = model.get_parameter("blocks.1.0.weight")
    weight.data = torch.zeros(8, 8).t()
    with tierd.follow(model, job=name) as follower:
        follower.refresh()
    assert weight.stride() == (1, 8)
    values = trainer.model.state_dict()
    for key, value in model.state_dict().items():
        assert torch.equal(value, values[key].to(value.dtype)), key


def test_values_go_straight_to_parameters_or_through_the_window_with_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, ours, theirs = Trainer(name), zeros(Model()), zeros(Model())
    trainer.step()
    with tierd.follow(ours, job=name) as follower:
        follower.refresh()
        assert follower._memory is not None
    monkeypatch.setattr("tierd.torch.follower.lend", refuse_memory)
    with tierd.follow(theirs, job=name) as follower:
        follower.refresh()
        assert follower._memory is None
    compare.assert_same_bits(ours.state_dict(), theirs.state_dict())
    compare.assert_same_bits(ours.state_dict(), trainer.model.state_dict())


def refuse_memory(*arguments: object) -> None:
    raise Error(errno.ENOMEM, "there is no memory")


def test_what_is_followed_keeps_its_values_and_its_parameters_until_a_refresh(name: str) -> None:
    trainer, model = Trainer(name), Model()
    parameters = list(model.parameters())
    values = {key: value.clone() for key, value in model.state_dict().items()}
    with tierd.follow(model, job=name) as follower:
        compare.assert_same_bits(model.state_dict(), values)
        assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
        follower.refresh()
    compare.assert_same_bits(model.state_dict(), trainer.model.state_dict())


def test_the_memory_of_parameters_outlives_their_follower_and_their_model(name: str) -> None:
    trainer, model = Trainer(name), Model()
    trainer.step()
    follower = tierd.follow(model, job=name)
    follower.refresh()
    weight = model.norm.weight.detach()[1:]
    values = trainer.model.state_dict()["norm.weight"][1:].clone()
    follower.close()
    del follower, model
    gc.collect()
    assert torch.equal(weight, values)
    weight.fill_(3)


def test_parameters_that_are_followed_are_copied_and_saved_one_by_one(name: str) -> None:
    Trainer(name)
    model = Model()
    with tierd.follow(model, job=name) as follower:
        follower.refresh()
    again = copy.deepcopy(model)
    compare.assert_same_bits(again.state_dict(), model.state_dict())
    zeros(again)
    assert model.norm.weight.any()
    file = io.BytesIO()
    torch.save(model.norm.state_dict(), file)
    file.seek(0)
    compare.assert_same_bits(torch.load(file), model.norm.state_dict())
    assert all(value.untyped_storage().nbytes() == value.nbytes for value in model.state_dict().values())


def test_parameters_whose_memory_is_shared_stay_where_they_are(name: str) -> None:
    """With others of the model, or as a part of more."""
    trainer, model = Trainer(name), Model()
    trainer.step()
    alias = model.norm.weight.data
    model.register_buffer("alias", alias, persistent=False)
    room = torch.zeros(10)
    model.norm.bias.data = room[1:9]
    with tierd.follow(model, job=name) as follower:
        follower.refresh()
    compare.assert_same_bits(model.state_dict(), trainer.model.state_dict())
    assert torch.equal(alias, model.norm.weight) and torch.equal(room[1:9], model.norm.bias)


def test_a_forked_process_sees_the_parameters(name: str) -> None:
    trainer, model = Trainer(name), Model()
    with tierd.follow(model, job=name) as follower:
        follower.refresh()
        child = os.fork()
        if child == 0:
            os._exit(not cannot_refresh(follower, model))
        assert os.waitpid(child, 0)[1] == 0
        trainer.step()
        assert follower.refresh() == 1
    compare.assert_same_bits(model.state_dict(), trainer.model.state_dict())


def cannot_refresh(follower: tierd.Follower, model: Model) -> bool:
    """And has its parameters all the same."""
    try:
        follower.refresh()
    except Error as error:
        return error.errno == errno.ECHILD and bool(model.norm.weight.any())
    return False


class Recurrent(Model):
    """With a module that has weak references to its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(8, 8, dtype=torch.bfloat16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        more: torch.Tensor = self.memory(torch.ones(1, 1, 8, dtype=torch.bfloat16))[0].sum()
        return super().forward(tokens) + more


def test_parameters_on_meta_get_memory(name: str) -> None:
    trainer = Trainer(name, Recurrent())
    trainer.step()
    with torch.device("meta"):
        model = Recurrent()
    with tierd.follow(model, job=name) as follower:
        follower.refresh()
    compare.assert_same_bits(model.state_dict(), trainer.model.state_dict())
    assert model.head.weight is model.embedding.weight
    tokens = torch.arange(4).view(1, 4)
    assert torch.equal(model(tokens), trainer.model(tokens))
    model.register_buffer("mask", torch.empty(3, device="meta"))
    with pytest.raises(Error, match="buffer mask is on meta"):
        tierd.follow(model, job=name)


def test_the_first_difference_is_named(name: str) -> None:
    Trainer(name)
    larger, smaller, untied, other = Model(), Model(), Model(), Model()
    larger.value = nn.Linear(8, 1)
    del smaller.norm
    untied.head = nn.Linear(8, 16, bias=False)
    other.codes.data = other.codes.view(3, 2)
    for model, text in (
        (larger, f"job {name} has no tensor value.weight, which the model has"),
        (smaller, f"job {name} has a tensor norm.weight, which the model has not"),
        (Model(4), rf"embedding.weight is bfloat16\[16, 4\] in the model, and bfloat16\[16, 8\] in job {name}"),
        (other, r"codes is I8\[3,2\] in the model, and I8\[2,3\] in job"),
    ):
        with pytest.raises(Error, match=text):
            tierd.follow(model, job=name)
    tierd.follow(smaller, job=name, strict=False).refresh()
    # Two parameters may have the values of one tensor, and not one those of two.
    tierd.follow(untied, job=name).refresh()
    assert torch.equal(untied.head.weight, untied.embedding.weight)
    tierd.job_of().close()
    Trainer(name, untied, mode=_core.REPLACE)
    with pytest.raises(Error, match="embedding.weight and head.weight are one parameter of the model, and not in job"):
        tierd.follow(Model(), job=name)
    with pytest.raises(Error, match="a model on tierd"):
        tierd.follow(untied, job=name)


def test_a_job_that_is_not_there_is_refused_or_waited_for(name: str) -> None:
    with pytest.raises(Error, match="nobody"):
        tierd.follow(Model(), job=name, socket="/tmp/nobody")
    with pytest.raises(Error, match=name):
        tierd.follow(Model(), job=name)
    model = Model()
    found: list[int] = []

    def wait() -> None:
        with tierd.follow(model, job=name, wait_s=100) as follower:
            found.append(follower.refresh())

    waiting = threading.Thread(target=wait)
    waiting.start()
    trainer = Trainer(name)
    waiting.join()
    assert found == [0]
    compare.assert_same_bits(model.state_dict(), trainer.model.state_dict())


def test_a_job_that_is_destroyed_leaves_the_model_its_parameters(name: str) -> None:
    trainer, model = Trainer(name), zeros(Model())
    trainer.step()
    values = trainer.model.state_dict()
    follower = tierd.follow(model, job=name)
    follower.refresh()
    training.end(trainer.model, name)
    with pytest.raises(Error, match=name):
        follower.refresh()
    assert follower.step == 1
    compare.assert_same_bits(model.state_dict(), values)
    # Another one of the name is followed, though it stands at the same step.
    trainer = Trainer(name)
    trainer.step()
    assert follower.refresh() == 1
    compare.assert_same_bits(model.state_dict(), trainer.model.state_dict())


def test_a_follower_goes_back_with_its_job(name: str) -> None:
    trainer, model, kept = Trainer(name, snapshots=1), Model(), Model()
    trainer.step()
    values = trainer.model.state_dict()
    tierctl("snapshot", name, "good")
    trainer.step(2)
    follower = tierd.follow(model, job=name)
    assert follower.refresh() == 3
    with tierd.follow(kept, job=name, snapshot="good") as of_snapshot:
        assert of_snapshot.refresh() == 1
    compare.assert_same_bits(kept.state_dict(), values)
    tierd.job_of().close()
    tierctl("rollback", "--yes", "--force", name, "good")
    assert follower.refresh() == 1
    compare.assert_same_bits(model.state_dict(), values)


@pytest.mark.parametrize("has_memory", [True, False])
def test_a_follower_goes_on_after_its_daemon_was_restarted_without_a_trainer(
    name: str, daemon: Daemon, has_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, model = Trainer(name), zeros(Model())
    trainer.step(2)
    follower = tierd.follow(model, job=name)
    weight = model.norm.weight.detach()
    tierd.job_of().close()
    daemon.stop()
    daemon.start()
    if not has_memory:
        monkeypatch.setattr(_core.Reader, "renew", refuse_memory)
    assert follower.refresh() == 2
    assert weight.any() and torch.equal(weight, model.norm.weight)
    values = {key: value.clone() for key, value in model.state_dict().items()}
    again = Trainer(name)
    compare.assert_same_bits(values, again.model.state_dict())
    again.step()
    assert follower.refresh() == 3


def test_without_a_daemon_the_parameters_stay(name: str, daemon: Daemon) -> None:
    trainer, model = Trainer(name), Model()
    follower = tierd.follow(model, job=name, reconnect_ms=0)
    follower.refresh()
    values = {key: value.clone() for key, value in model.state_dict().items()}
    tierd.job_of().close()
    daemon.stop()
    with pytest.raises(Error):
        follower.refresh()
    assert follower.step == 0
    compare.assert_same_bits(model.state_dict(), values)
    daemon.start()
    assert follower.refresh() == 0
    assert trainer.job == follower.job


def test_parameters_of_two_steps_are_never_computed_with(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, model = Trainer(name), Model()
    follower = tierd.follow(model, job=name)
    follower.refresh()
    trainer.step()

    def read_half(reader: _core.Reader, tensors: list[Followed]) -> None:
        read(reader, tensors[: len(tensors) // 2])
        raise Error(errno.ECONNRESET, "the connection was lost")

    monkeypatch.setattr("tierd.torch.follower.read", read_half)
    with pytest.raises(Error, match="lost"):
        follower.refresh()
    assert follower.step is None
    assert all(parameter.isnan().all() for parameter in model.parameters() if parameter.is_floating_point())
    monkeypatch.undo()
    assert follower.refresh() == 1
    compare.assert_same_bits(model.state_dict(), trainer.model.state_dict())


def test_a_step_in_the_middle_of_a_refresh_does_not_get_into_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, model = Trainer(name), zeros(Model())
    values = []

    def read_late(reader: _core.Reader, tensors: list[Followed]) -> None:
        values.append(trainer.model.state_dict())
        trainer.step()
        read(reader, tensors)

    with tierd.follow(model, job=name) as follower:
        monkeypatch.setattr("tierd.torch.follower.read", read_late)
        for step in (1, 2, 3):
            assert follower.refresh() == step
            compare.assert_same_bits(model.state_dict(), values[step])


class Counting(nn.Module):
    """Whose parameters are the number of steps, less."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.Identity()) for _ in range(40))

    def forward(self) -> torch.Tensor:
        return torch.stack([parameter.sum() for parameter in self.parameters()]).sum()


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_refresh_beside_steps_gives_parameters_of_one_step(name: str, is_slow: bool) -> None:
    trained, model = zeros(Counting()), Counting()
    optimizer = torch.optim.SGD(trained.parameters(), lr=1.0)
    training.initialize(trained, optimizer, name)
    follower = tierd.follow(model, job=name)
    follower._is_slow = is_slow
    is_over = threading.Event()
    steps: list[int] = []

    def look() -> None:
        try:
            while len(set(steps)) < 20:
                steps.append(follower.refresh())
                for parameter in model.parameters():
                    assert (parameter == -steps[-1]).all(), (parameter, steps[-1])
        finally:
            is_over.set()

    looking = threading.Thread(target=look)
    looking.start()
    while not is_over.is_set():
        trained().backward()
        optimizer.step()
    looking.join()
    assert len(set(steps)) == 20
    assert steps == sorted(steps)


# ---- Several jobs


def make_three() -> tuple[nn.Module, nn.Module, nn.Module]:
    torch.manual_seed(1)
    actor, critic, reference = (nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(3))
    return actor, critic, reference.requires_grad_(False)


def train_three(models: tuple[nn.Module, nn.Module, nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
    """Two losses of their own, then one through all three, and steps that are not side by side."""
    actor, critic, reference = models
    torch.manual_seed(2)
    for i in range(6):
        states = torch.randn(5, 4)
        policy_loss = (actor(states) - reference(states)).square().mean()
        value_loss = critic(states).square().mean()
        value_loss.backward()
        policy_loss.backward()
        optimizers[1].step()
        shared = (actor(states) * critic(states)).mean() + (critic(actor.get_submodule("0")(states)[:, :4])).mean()
        optimizers[1].zero_grad()
        update(shared, optimizers[0])
        if i % 2:
            optimizers[1].step()
            optimizers[1].zero_grad()


def test_actor_critic_and_reference_are_trained_in_one_process_as_without_tierd(name: str) -> None:
    plain, ours = make_three(), make_three()
    train_three(plain, [torch.optim.SGD(model.parameters(), lr=0.1) for model in plain[:2]])
    optimizers: list[torch.optim.Optimizer] = [torch.optim.SGD(model.parameters(), lr=0.1) for model in ours]
    jobs = [f"{name[:50]}-{role}" for role in ("actor", "critic", "reference")]
    for model, optimizer, job in zip(ours, optimizers, jobs, strict=True):
        training.initialize(model, optimizer, job)
    train_three(ours, optimizers)
    for their, our in zip(plain, ours, strict=True):
        compare.assert_same_bits(our.state_dict(), their.state_dict())
    # One of them goes, and the others go on.
    training.end(ours[1], jobs[1])
    for model, optimizer in ((plain[0], torch.optim.SGD(plain[0].parameters(), lr=0.1)), (ours[0], optimizers[0])):
        update(model(torch.ones(3, 4)).sum(), optimizer)
    compare.assert_same_bits(ours[0].state_dict(), plain[0].state_dict())
    compare.assert_same_bits(ours[2].state_dict(), plain[2].state_dict())
    for model, job in ((ours[0], jobs[0]), (ours[2], jobs[2])):
        training.end(model, job)
