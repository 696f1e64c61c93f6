"""State that goes from a plain model and optimizer to a job, between two steps, and back."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import tierd
import tierd.torch
from compare import assert_close, assert_same_bits
from conftest import Daemon, job_name, tierctl
from tierd.torch import state_dicts
from tierd.torch.membership import Standing
from training import MakeOptimizer, initialize, update


class Model(nn.Module):
    """Tied weights, buffers, a frozen part with bytes, and two units of which one may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.norm = nn.BatchNorm1d(8)
        self.block = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)])
        self.table = nn.Parameter(torch.arange(4), requires_grad=False)
        self.base = nn.Parameter(torch.randn(8), requires_grad=False)
        self.eighth = nn.Parameter(torch.ones(3).to(torch.float8_e4m3fn), requires_grad=False)
        self.empty = nn.Parameter(torch.zeros(0, 4), requires_grad=False)
        self.head = nn.Linear(8, 12)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, blocks: int = 2) -> Tensor:
        x = self.norm(self.embedding(tokens) + self.base)
        for block in self.block[:blocks]:
            x = block(x)
        result: Tensor = self.head(x)
        return result


TOKENS = torch.tensor([[0, 3, 5, 7], [2, 2, 9, 11]]).flatten()
adamw = partial(torch.optim.AdamW, lr=1e-2)
momentum = partial(torch.optim.SGD, lr=0.125, momentum=0.5)  # of which fused and separate products are equal


def make(
    seed: int, make_optimizer: MakeOptimizer = adamw, dtype: torch.dtype = torch.float32
) -> tuple[Model, Optimizer]:
    """A model and its optimizer; frozen values are those of all seeds."""
    torch.manual_seed(seed)
    model = Model()
    with torch.no_grad():
        model.base.copy_(torch.linspace(-1, 1, 8))
    model.to(dtype)
    return model, make_optimizer(model.parameters())


def train(model: nn.Module, optimizer: Optimizer, steps: int, **options: Any) -> None:
    for _ in range(steps):
        update(model(TOKENS, **options).square().mean(), optimizer)


Start = Callable[..., tuple[Model, Optimizer]]


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Start:
    """A model and an optimizer on tierd."""
    numbers = itertools.count()

    def start(seed: int = 1, *arguments: Any, job: str = "", **options: Any) -> tuple[Model, Optimizer]:
        model, optimizer = make(seed, *arguments)
        initialize(model, optimizer, job_name(f"{request.node.name}-{job or next(numbers)}"), **options)
        return model, optimizer

    return start


# ---- The model


def test_a_model_takes_other_values_between_two_steps(start: Start) -> None:
    model, optimizer = start()
    train(model, optimizer, 2)
    theirs, their_optimizer = make(2)
    train(theirs, their_optimizer, 1)
    assert str(model.load_state_dict(theirs.state_dict())) == "<All keys matched successfully>"
    assert_same_bits(model, theirs)
    train(model, optimizer, 1)
    assert not torch.equal(model.state_dict()["head.bias"], theirs.state_dict()["head.bias"])


def test_values_that_are_loaded_have_what_is_kept_beside_them(start: Start) -> None:
    """So that who comes back knows of them."""
    model, optimizer = start()
    train(model, optimizer, 1)
    job = tierd.torch.job_of(model)
    job.kept.state["loaded"] = True
    model.load_state_dict(make(2)[0].state_dict())
    job.restore()
    assert job.kept.state == {"loaded": True}


def test_names_of_a_tied_weight_share_its_copy(start: Start) -> None:
    model, _ = start()
    state = model.state_dict()
    assert state["embedding.weight"] is not model.embedding.weight
    assert state["embedding.weight"].data_ptr() == state["head.weight"].data_ptr()
    assert model.state_dict()["head.weight"].data_ptr() != state["head.weight"].data_ptr()


def test_a_state_dict_gathers_each_unit_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = start()
    membership = tierd.torch.job_of(model).membership
    gathered: list[str] = []
    gather = membership.capsules

    def count(unit: int, name: str) -> Any:
        gathered.append(name)
        return gather(unit, name)

    monkeypatch.setattr(membership, "capsules", count)
    model.state_dict()
    assert sorted(gathered) == sorted(unit.name for unit in tierd.torch.job_of(model).units)
    gathered.clear()
    model.block.state_dict()
    assert sorted(gathered) == ["block.0", "block.1"]
    gathered.clear()
    assert model.state_dict(keep_vars=True)["head.bias"] is model.head.bias
    assert not gathered


def test_a_state_dict_made_in_a_forward_has_copies(start: Start) -> None:
    model, optimizer = start()
    states: list[dict[str, Tensor]] = []
    hook = model.block[1].register_forward_pre_hook(lambda *_: states.append(model.state_dict()))
    before = model.state_dict()
    train(model, optimizer, 1)
    hook.remove()
    assert_same_bits({**states[0], **dict(model.named_buffers())}, {**before, **dict(model.named_buffers())})
    assert states[0]["embedding.weight"].data_ptr() == states[0]["head.weight"].data_ptr()
    train(model, optimizer, 1)


def test_a_state_dict_has_values_of_one_step(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = start(1, adamw, snapshots=1)
    train(model, optimizer, 1)
    job = tierd.torch.job_of(model)
    job.finish()
    tierd.torch.snapshot("here")
    before = dict(model.state_dict())
    train(model, optimizer, 1)
    job.finish()
    monkeypatch.setattr(job.membership, "can_go_back", True)
    copy_unit = state_dicts._Copies.of

    def copy_and_go_back(self: Any, unit: Any, tensor: int) -> Tensor:
        copied = copy_unit(self, unit, tensor)
        if unit.is_trained and not job.membership.losses:
            tierctl("rollback", "--yes", "--force", job.name, "here")
        return copied

    monkeypatch.setattr(state_dicts._Copies, "of", copy_and_go_back)
    state = model.state_dict()
    assert job.membership.losses == 1
    assert_same_bits({**state, **dict(model.named_buffers())}, {**before, **dict(model.named_buffers())})
    job.membership.standing = Standing.RUNNING


@pytest.mark.parametrize("mistake", ["missing", "unexpected", "shape", "architecture"])
def test_a_state_dict_that_does_not_fit_says_what_torch_says_and_changes_nothing(start: Start, mistake: str) -> None:
    model, optimizer = start()
    train(model, optimizer, 1)
    before = model.state_dict()
    plain, _ = make(1)
    bad = make(2)[0].state_dict()
    if mistake == "missing":
        del bad["block.1.0.weight"]
    elif mistake == "unexpected":
        bad["other"] = torch.zeros(2)
    elif mistake == "shape":
        bad["block.1.0.weight"] = torch.zeros(9, 8)
    else:
        bad = nn.Linear(2, 2).state_dict()
    with pytest.raises(RuntimeError) as theirs:
        plain.load_state_dict(bad)
    with pytest.raises(RuntimeError) as ours:
        model.load_state_dict(bad)
    assert str(ours.value) == str(theirs.value)
    assert_same_bits(model, before)
    if mistake in ("missing", "unexpected"):
        result = model.load_state_dict(bad, strict=False)
        assert result == plain.load_state_dict(bad, strict=False)
        changed = model.state_dict()
        assert torch.equal(changed["head.bias"], bad["head.bias"])
        if mistake == "missing":
            assert torch.equal(changed["block.1.0.weight"], before["block.1.0.weight"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_other_types_are_converted_as_by_torch(start: Start, dtype: torch.dtype) -> None:
    model, _ = start(1, adamw, torch.bfloat16)
    theirs, _ = make(2, adamw, torch.bfloat16)
    state = {
        name: value.to(dtype) if value.is_floating_point() else value for name, value in make(3)[0].state_dict().items()
    }
    model.load_state_dict(state)
    theirs.load_state_dict(state)
    assert_same_bits(model, theirs)


def test_other_values_of_what_is_frozen_are_refused(start: Start) -> None:
    model, _ = start()
    before = model.state_dict()
    for name in ("base", "table"):
        other = make(2)[0].state_dict()
        other[name] += 1
        with pytest.raises(tierd.Error, match=f'"{name}" is frozen'):
            model.load_state_dict(other)
        assert_same_bits(model, before)


def test_what_cannot_be_written_names_the_call_that_does(start: Start) -> None:
    model, _ = start()
    sentence = r"block\.0\.0\.weight is in the daemon's memory .* the whole model's load_state_dict"
    with pytest.raises(RuntimeError, match=sentence):
        model.block.load_state_dict(make(2)[0].block.state_dict())
    with pytest.raises(RuntimeError, match=sentence):
        nn.init.zeros_(model.get_parameter("block.0.0.weight"))
    with pytest.raises(tierd.Error, match="assign=True would take"):
        model.load_state_dict(model.state_dict(), assign=True)


def test_values_come_before_backward_or_after_the_step(start: Start) -> None:
    model, optimizer = start()
    state = model.state_dict()
    model(TOKENS).sum().backward()
    with pytest.raises(tierd.Error, match=r"between backward\(\) and step\(\)"):
        model.load_state_dict(state)
    optimizer.zero_grad()
    model.load_state_dict(state)
    kept = model.get_parameter("block.0.0.weight").detach()
    with pytest.raises(tierd.Error, match=r"block\.0"):
        model.load_state_dict(state)
    del kept
    model.load_state_dict(state)


def test_buffers_are_kept_with_the_values(start: Start) -> None:
    model, _ = start(job="same")
    theirs, their_optimizer = make(2)
    train(theirs, their_optimizer, 2)
    model.load_state_dict(theirs.state_dict())
    tierd.torch.close(model)
    again, _ = start(3, job="same")
    assert_same_bits(again, theirs)


def test_a_copy_of_the_model_loads_for_itself(start: Start) -> None:
    model, _ = start()
    before = model.state_dict()
    theirs, _ = make(2)
    other = copy.deepcopy(model)
    other.load_state_dict(theirs.state_dict())
    assert_same_bits(other, theirs)
    assert_same_bits(model, before)


def test_a_mapped_checkpoint_is_read_tensor_by_tensor(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    model(torch.ones(1, 1024)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint")
    values = copy.deepcopy(model)
    optimizer.state.clear()
    initialize(model, optimizer, "mapped")
    job: Any = tierd.torch.job_of(model)
    checkpoint = torch.load(tmp_path / "checkpoint", mmap=True, weights_only=True)
    start = resident_bytes()
    watched = Watched(job.core)
    monkeypatch.setattr(job, "core", watched)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    monkeypatch.undo()
    assert len(watched.memory) == 16
    # A tensor has 4 MiB, and the checkpoint 64.
    assert max(watched.memory) - start < 12 << 20
    assert_same_bits(model, values)


class Watched:
    """A job of the core, and how much memory there was at each of its writes."""

    def __init__(self, core: Any):
        self._core = core
        self.memory: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def write(self, *arguments: Any) -> None:
        self._core.write(*arguments)
        self.memory.append(resident_bytes())

    def write_state(self, *arguments: Any) -> None:
        self._core.write_state(*arguments)
        self.memory.append(resident_bytes())


def resident_bytes() -> int:
    """This process' memory, and what it has mapped of files, without what it shares with the daemon."""
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(status[name].split()[0]) for name in ("RssAnon", "RssFile")) << 10


# ---- What goes wrong on the way


def test_a_daemon_that_is_lost_leaves_the_job_as_it_was(
    start: Start, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = start()
    train(model, optimizer, 2)
    job = tierd.torch.job_of(model)
    before = model.state_dict()
    write = state_dicts._write

    def write_and_lose(*arguments: Any) -> None:
        write(*arguments)
        monkeypatch.undo()
        daemon.stop()
        daemon.start()

    monkeypatch.setattr(state_dicts, "_write", write_and_lose)
    with pytest.raises(tierd.StaleError):
        model.load_state_dict(make(2)[0].state_dict())
    assert job.membership.ready() == 2
    assert_same_bits(model, before)
    train(model, optimizer, 1)


def test_a_rank_that_is_lost_leaves_the_job_as_it_was(daemon: Daemon) -> None:
    def load(rank: int, model: Model, optimizer: Optimizer) -> None:
        job = tierd.torch.job_of(model)
        before = model.state_dict()
        if rank == 1:
            with pytest.raises(tierd.Error), job.writing():
                job.detach()
            again, _ = initialize(*make(1), "lost-rank", rank=1, world_size=2)
            assert_same_bits(again, before)
            tierd.torch.close(again)
            return
        with pytest.raises(tierd.StaleError):
            model.load_state_dict(make(2)[0].state_dict())
        job.membership.ready()
        assert_same_bits(model, before)

    in_two_ranks("lost-rank", load)


def in_two_ranks(job: str, what: Callable[[int, Model, Optimizer], Any]) -> list[Any]:
    """What it gives in each of two ranks, which are threads."""

    def run(rank: int) -> Any:
        model, optimizer = models[rank]
        initialize(model, optimizer, job, rank=rank, world_size=2)
        try:
            return what(rank, model, optimizer)
        finally:
            with suppress(tierd.Error):  # the other one is gone
                tierd.torch.close(model)

    models = [make(rank) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


def test_the_values_of_rank_0_count_and_an_error_of_any_rank_leaves_all_as_it_was(daemon: Daemon) -> None:
    # Made here: their random numbers are the process'.
    given = [make(seed)[0].state_dict() for seed in (5, 6, 7)]

    def load(rank: int, model: Model, optimizer: Optimizer) -> list[Any]:
        states: list[Any] = []
        model.load_state_dict(given[rank])
        states.append(model.state_dict())
        bad = dict(given[2])
        if rank == 1:
            del bad["head.bias"]
        try:
            model.load_state_dict(bad)
        except (RuntimeError, tierd.Error) as error:
            states.append(str(error))
        states.append(model.state_dict())
        return states

    (first, canceled, after), (other, missing, other_after) = in_two_ranks("two-ranks", load)
    for state in (first, after, other, other_after):
        assert_same_bits(state, {**state, **dict(make(5)[0].named_parameters())})
    assert "rank 1" in canceled
    assert 'Missing key(s) in state_dict: "head.bias"' in missing


def test_a_step_that_was_refused_is_told_to_who_wants_its_values(daemon: Daemon) -> None:
    def read(rank: int, model: Model, optimizer: Optimizer) -> str:
        optimizer.param_groups[0]["lr"] = 0.25 * (1 + rank)
        model(TOKENS).square().mean().backward()
        optimizer.step()
        try:
            model.state_dict()
        except tierd.Error as error:
            with suppress(tierd.Error):  # what the other one waits for
                tierd.torch.job_of(model).detach()
            return str(error)
        return ""

    assert sorted("learning rate is" in said for said in in_two_ranks("refused-rates", read)) == [False, True]


# ---- The optimizer


@pytest.mark.parametrize("make_optimizer", [adamw, momentum], ids=["adamw", "momentum"])
def test_a_training_goes_on_in_tierd_from_a_checkpoint_of_torch_and_back(
    start: Start, make_optimizer: MakeOptimizer
) -> None:
    plain, plain_optimizer = make(1, make_optimizer)
    train(plain, plain_optimizer, 3)
    model, optimizer = start(2, make_optimizer)
    train(model, optimizer, 1)
    model.load_state_dict(plain.state_dict())
    optimizer.load_state_dict(plain_optimizer.state_dict())
    assert_same_states(optimizer.state_dict(), plain_optimizer.state_dict())
    back, back_optimizer = make(3, make_optimizer)
    for each in ((plain, plain_optimizer), (model, optimizer)):
        train(*each, 3)
    back.load_state_dict(model.state_dict())
    back_optimizer.load_state_dict(optimizer.state_dict())
    for each in ((plain, plain_optimizer), (back, back_optimizer)):
        train(*each, 3)
    if make_optimizer is momentum:
        assert_same_bits(back, plain)
    else:
        assert_close(back, plain, 2e-6)
    assert back_optimizer.state_dict()["param_groups"] == plain_optimizer.state_dict()["param_groups"]


def assert_same_states(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Fails unless two optimizers keep the same for the same parameters."""
    assert ours["state"].keys() == theirs["state"].keys()
    for number, state in theirs["state"].items():
        assert_same_bits(ours["state"][number], state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_job_goes_on_in_another_one_with_the_same_bits(start: Start, dtype: torch.dtype) -> None:
    model, optimizer = start(1, adamw, dtype)
    train(model, optimizer, 2)
    train(model, optimizer, 2, blocks=1)
    state, of_optimizer = model.state_dict(), optimizer.state_dict()
    steps = {float(item["step"]) for item in of_optimizer["state"].values()}
    assert steps == {2.0, 4.0}
    other, other_optimizer = start(2, adamw, dtype)
    train(other, other_optimizer, 1)
    other.load_state_dict(state)
    other_optimizer.load_state_dict(of_optimizer)
    # Values that it has already leave their masters alone.
    other.load_state_dict(state)
    assert_same_states(other_optimizer.state_dict(), of_optimizer)
    for each in ((model, optimizer), (other, other_optimizer)):
        train(*each, 3)
    assert_same_bits(other, model)
    assert_same_states(other_optimizer.state_dict(), optimizer.state_dict())


def test_groups_are_loaded_into_the_lists_that_others_hold(start: Start) -> None:
    _, optimizer = start()
    groups = optimizer.param_groups
    group = groups[0]
    plain_optimizer = torch.optim.AdamW(make(1)[0].parameters(), lr=0.5, betas=(0.5, 0.75))
    optimizer.load_state_dict(plain_optimizer.state_dict())
    assert optimizer.param_groups is groups
    assert groups[0] is group
    assert (group["lr"], group["betas"]) == (0.5, (0.5, 0.75))
    assert optimizer.state_dict()["state"] == {}


def test_a_fresh_state_takes_the_moments_away(start: Start) -> None:
    model, optimizer = start()
    fresh = copy.deepcopy(optimizer.state_dict())
    train(model, optimizer, 1)
    assert optimizer.state_dict()["state"]
    optimizer.load_state_dict(fresh)
    assert not optimizer.state_dict()["state"]


def test_state_of_another_optimizer_or_architecture_is_refused_and_changes_nothing(start: Start) -> None:
    model, optimizer = start()
    train(model, optimizer, 1)
    before = copy.deepcopy(optimizer.state_dict())
    plain, sgd = make(1, momentum)
    train(plain, sgd, 1)
    with pytest.raises(tierd.Error, match="of another optimizer: it has momentum_buffer, and AdamW keeps exp_avg"):
        optimizer.load_state_dict({**before, "state": sgd.state_dict()["state"]})
    other = copy.deepcopy(before)
    other["state"][max(other["state"])]["exp_avg"] = torch.zeros(5)
    other["param_groups"][0]["lr"] = 7.0
    with pytest.raises(tierd.Error, match=r"exp_avg of \S+ is of shape \[5\]"):
        optimizer.load_state_dict(other)
    with pytest.raises(ValueError, match="parameter group"):
        optimizer.load_state_dict({"state": {}, "param_groups": []})
    assert optimizer.param_groups[0]["lr"] == 1e-2
    assert_same_states(optimizer.state_dict(), before)


def test_parameters_of_a_unit_count_their_own_updates(start: Start) -> None:
    model, optimizer = start()
    train(model, optimizer, 1)
    state = copy.deepcopy(optimizer.state_dict())
    number = next(i for i, (name, _) in enumerate(model.named_parameters()) if name == "block.0.0.bias")
    state["state"][number]["step"] = torch.tensor(9.0)
    del state["state"][number + 1]
    optimizer.load_state_dict(state)
    loaded = optimizer.state_dict()["state"]
    assert loaded[number]["step"] == 9
    assert loaded[number - 1]["step"] == 1
    assert number + 1 not in loaded
    train(model, optimizer, 1)
    assert [optimizer.state_dict()["state"][number + i]["step"] for i in (-1, 0, 1)] == [2, 10, 1]
