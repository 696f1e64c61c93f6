"""Models that are computed on a GPU, with a stand-in for one: the bits of the host's memory, as late and as early as streams may be."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import compare
import tierd.torch
from conftest import Daemon
from gpu_stand_in import StandIn, Stream
from models import BY_NAME
from reference import Plan
from tierd import _core
from tierd.torch import compat, device, pinning
from tierd.torch import kept as kept_of_model
from tierd.torch.device import Device
from tierd.torch.storage import Unit
from training import end, initialize, trained, update

# Of one of Model's blocks.
BLOCK_BYTES = 4 * (64 * 64 + 64)


@pytest.fixture(params=["late", "early"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What GPUs are; their settings are set through it."""
    monkeypatch.setattr(device, "Cuda", StandIn)
    monkeypatch.setattr(StandIn, "is_late", request.param == "late")
    return monkeypatch


class Model(nn.Module):
    """Equal blocks, of which some are recomputed, one is frozen, and a head that is used twice."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(6))
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, width)
        self.blocks[3].requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.repeat(1, self.head.in_features // 64)
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=number == 1) if number in (1, 2) else block(x)
        penalty = self.blocks[0].get_parameter("0.weight").sum() / 1e4
        loss: Tensor = self.head(self.norm(self.head(x))).square().mean() + penalty
        return loss


def make() -> Model:
    torch.manual_seed(7)
    return Model()


def batch(number: int) -> Tensor:
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(number)).requires_grad_()


def put(
    model: nn.Module, job: str, kind: Callable[..., torch.optim.Optimizer] = torch.optim.SGD, **options: Any
) -> Any:
    """Its optimizer, when it is on a GPU."""
    optimizer = kind([item for item in model.parameters() if item.requires_grad], lr=0.1)
    return initialize(model, optimizer, job, **({"device": "cuda", "gpu_tier": False} | options))[1]


def memory_of(model: nn.Module) -> Device:
    memory = tierd.torch.job_of(model).memory
    assert isinstance(memory, Device)
    return memory


def stand_in_of(model: nn.Module) -> StandIn:
    stand_in: Any = memory_of(model)._cuda
    assert isinstance(stand_in, StandIn)
    return stand_in


Start = Callable[..., Iterator[tuple[Any, Any]]]


@pytest.fixture
def both(gpu: pytest.MonkeyPatch, job: str) -> Iterator[Start]:
    """The same model and its optimizer, on a GPU and then on the processor; in the end they have the same bits."""
    models: list[nn.Module] = []

    def start(
        kind: Callable[..., torch.optim.Optimizer] = torch.optim.SGD, build: Callable[[], nn.Module] = Model
    ) -> Iterator[tuple[nn.Module, Any]]:
        for where in ("cuda", "cpu"):
            torch.manual_seed(7)
            models.append(build())
            yield models[-1], put(models[-1], f"{where}-{job[-50:]}", kind, device=where)

    yield start
    compare.assert_same_bits(*models)


# ---- The bits of the host's memory


@pytest.mark.parametrize("name", ["tied", "branches", "resnet", "gpt2"])
def test_a_model_gets_every_bit(gpu: pytest.MonkeyPatch, name: str, job: str) -> None:
    plan = Plan(BY_NAME[name], steps=3, micro_batches=2, max_grad_norm=0.5)
    sgd = partial(torch.optim.SGD, lr=0.05)
    there, here = trained(plan, sgd, job, device="cuda", gpu_tier=False), trained(plan, sgd, f"host-{job[-50:]}")
    compare.assert_losses_close(there.losses, here.losses, 0.0)
    compare.assert_same_bits(there.state, here.state)


def plainly(model: nn.Module, optimizer: Any) -> None:
    for number in range(3):
        update(model(batch(number)), optimizer)


def in_parts(model: nn.Module, optimizer: Any) -> None:
    """A unit's gradients come in two parts, and another backward is given up."""
    for number in range(3):
        model(batch(number)).backward()
        update(model(batch(number + 1)), optimizer)
        model(batch(number)).backward()
        optimizer.zero_grad()


def with_other_values(model: nn.Module, optimizer: Any) -> None:
    plainly(model, optimizer)
    values = model.state_dict()
    plainly(model, optimizer)
    model(batch(0))
    model.load_state_dict(values)
    plainly(model, optimizer)


def with_evaluations(model: nn.Module, optimizer: Any) -> None:
    plainly(model, optimizer)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            model(batch(0))
        plainly(model, optimizer)


def with_a_scaler(model: nn.Module, optimizer: Any) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for number in range(3):
        scaler.scale(model(batch(number))).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@pytest.mark.parametrize("loop", [plainly, in_parts, with_other_values, with_evaluations, with_a_scaler])
def test_a_loop_gets_every_bit(both: Start, loop: Callable[[nn.Module, Any], None]) -> None:
    for model, optimizer in both():
        loop(model, optimizer)


def test_an_optimizer_in_the_trainer_gets_every_bit(both: Start) -> None:
    for model, optimizer in both(torch.optim.Adagrad):
        plainly(model, optimizer)


class Twice(nn.Module):
    """A gradient of the second layer comes in a backward inside of another one, and another one before the first layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        loss: Tensor = (checkpoint(self.second, x, use_reentrant=True) + self.second(x)).square().mean()
        return loss


def test_gradients_from_before_count(gpu: pytest.MonkeyPatch, job: str) -> None:
    ours, plain = make(), make()
    for model in (ours, plain):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 0.5) if parameter.requires_grad else None
    plainly(ours, put(ours, job))
    plainly(plain, torch.optim.SGD([item for item in plain.parameters() if item.requires_grad], lr=0.1))
    compare.assert_same_bits(ours, plain)


def test_gradients_of_one_tensor_are_summed(both: Start) -> None:
    for model, optimizer in both(build=lambda: nn.Sequential(Twice())):
        plainly(model, optimizer)


def test_memory_that_cannot_be_pinned_costs_no_bit(
    gpu: pytest.MonkeyPatch, both: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu.setattr(StandIn, "can_pin", False)
    gpu.setattr(pinning.Ring, "PIECE_BYTES", 1000)
    for model, optimizer in both():
        plainly(model, optimizer)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("memory: ")[2] for line in said] == [
        "parameters pass through a pinned buffer",
        "backward waits while gradients are copied",
    ]


def test_a_job_goes_on_with_another_daemon(both: Start, daemon: Daemon) -> None:
    crashes = [4, 2]  # what was trained two steps ago is durable
    for model, optimizer in both():
        for number in tierd.torch.resumable(range(6), model=model):
            loss = model(batch(number))
            if crashes and number == crashes[-1]:
                crashes.pop()
                daemon.kill()
                daemon.start()
            update(loss, optimizer)
        job = tierd.torch.job_of(model)
        with torch.no_grad():
            model(batch(0))
        if isinstance(job.memory, Device):
            assert stand_in_of(model).pins == dict(job.core.mappings())


def test_a_job_goes_on_without_a_word_where_another_daemon_has_all_of_it(
    both: Start, daemon: Daemon, capfd: pytest.CaptureFixture[str]
) -> None:
    for model, optimizer in both():
        plainly(model, optimizer)
        job = tierd.torch.job_of(model)
        _, ticket = job._last or pytest.fail("there is no step")
        ticket.wait(_core.DURABLE)
        daemon.kill()
        daemon.start()
        plainly(model, optimizer)
        if isinstance(job.memory, Device):
            assert stand_in_of(model).pins == dict(job.core.mappings())
    assert "goes back" not in capfd.readouterr().err


# ---- What is where, and when


def test_units_are_copied_before_they_are_wanted(gpu: pytest.MonkeyPatch, job: str) -> None:
    model = make()
    optimizer = put(model, job)
    memory, wanted = memory_of(model), list[str]()
    fetch = memory._fetch

    def watch(unit: Unit) -> None:
        wanted.append(unit.name)
        fetch(unit)

    gpu.setattr(memory, "_fetch", watch)
    for number in range(3):
        tierd.torch.job_of(model).finish()  # else an update may not have come to the next unit
        wanted.clear()
        update(model(batch(number)), optimizer)
    assert wanted == ["blocks.0"]


def test_what_a_step_changes_is_not_copied_before_it(gpu: pytest.MonkeyPatch, job: str) -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64)) for _ in range(5)))
    model[0].requires_grad_(False)  # backward ends before it
    optimizer = put(model, job)
    copies, copied = memory_of(model)._copies, list[str]()
    begin = copies.make

    def watch(unit: Unit, lease: Any, *, is_wanted: bool) -> None:
        copied.append(unit.name)
        begin(unit, lease, is_wanted=is_wanted)

    gpu.setattr(copies, "make", watch)
    for number in range(3):
        tierd.torch.job_of(model).finish()
        copied.clear()
        update(model(batch(number).detach()).sum(), optimizer)
    assert copied == ["0.frozen", "1", "2", "3", "4", "1"]


def test_a_model_larger_than_the_gpu_gets_every_bit(gpu: pytest.MonkeyPatch, both: Start) -> None:
    gpu.setattr(StandIn, "room", 3 * BLOCK_BYTES)
    for model, optimizer in both():
        plainly(model, optimizer)
        if isinstance(tierd.torch.job_of(model).memory, Device):
            assert stand_in_of(model).most <= 3 * BLOCK_BYTES < sum(item.nbytes for item in model.parameters()) / 2


def test_a_unit_that_does_not_fit_is_named_and_leaves_nothing_behind(gpu: pytest.MonkeyPatch, job: str) -> None:
    model = make()
    optimizer = put(model, job)
    with gpu.context() as short:
        short.setattr(StandIn, "room", BLOCK_BYTES // 2)
        with pytest.raises(
            tierd.torch.Error, match=r"unit blocks\.0 takes 16.2 KiB, for which .* has no room"
        ) as caught:
            model(batch(0))
        assert caught.value.errno == errno.ENOMEM
        assert tierd.torch.job_of(model).core.leases() == 0
    plainly(model, optimizer)


def test_a_view_stays_as_it_was_and_holds_no_step_up(gpu: pytest.MonkeyPatch, job: str) -> None:
    model = make()
    optimizer = put(model, job)
    kept: list[Tensor] = []
    model.blocks[4].register_forward_pre_hook(lambda module, _: kept.append(module.get_parameter("0.weight").detach()))
    plainly(model, optimizer)
    assert len({each.data_ptr() for each in kept}) == len(kept) >= 3
    plain = make()
    plain.blocks[4].register_forward_pre_hook(
        lambda *_: plain_kept.append(plain.blocks[4].get_parameter("0.weight").clone())
    )
    plain_kept: list[Tensor] = []
    plainly(plain, torch.optim.SGD([item for item in plain.parameters() if item.requires_grad], lr=0.1))
    for ours, theirs in zip(kept, plain_kept, strict=True):
        compare.assert_same_bits({"": ours}, {"": theirs})
    # What nobody views any more is no unit's.
    addresses = {each.untyped_storage().data_ptr() for each in kept[:-2]}
    assert not addresses & tierd.torch.job_of(model).addresses.keys()


def test_gradients_are_pushed_when_they_are_copied_and_nobody_waits(gpu: pytest.MonkeyPatch, job: str) -> None:
    model = make()
    optimizer = put(model, job, gradient_bytes="1M")
    membership = tierd.torch.job_of(model).membership
    push, pushed = membership.push, list[int]()

    def count(unit: int, absent: list[int]) -> None:
        pushed.append(unit)
        push(unit, absent)

    gpu.setattr(membership, "push", count)
    loss = model(batch(0))
    with gpu.context() as patch:
        patch.setattr(StandIn, "finish", lambda self, event: pytest.fail("backward waits for the GPU"))
        patch.setattr(StandIn, "is_done", lambda self, event: not self.is_late)
        loss.backward()
    assert len(pushed) == (0 if StandIn.is_late else 6)
    optimizer.step()
    assert len(pushed) == 6


def test_a_second_stream_waits_for_a_unit_that_is_there(gpu: pytest.MonkeyPatch, job: str) -> None:
    model = make()
    put(model, job)
    stand_in, other = stand_in_of(model), Stream(is_copying=False)

    def reads(module: nn.Module, arguments: object) -> None:
        with stand_in.computing_on(other):
            model.blocks[0](batch(0))

    hook = model.blocks[0].get_submodule("1").register_forward_pre_hook(reads)
    model.blocks[0].get_submodule("1").register_forward_pre_hook(lambda *_: hook.remove(), prepend=True)
    model(batch(0))
    assert any(stream.is_copying for stream in other.seen)


def test_the_end_of_a_backward_that_has_failed_is_awaited(gpu: pytest.MonkeyPatch, both: Start) -> None:
    """With a GPU a thread of autograd's lets go of it later than backward() has raised."""
    callback, held = compat.at_end_of_backward, []

    def hold(end: Any) -> None:
        callback(end)
        held.append(end)

    for model, optimizer in both():
        hook = model.blocks[0].get_parameter("0.weight").register_hook(fails)
        with gpu.context() as patch:
            patch.setattr(compat, "at_end_of_backward", hold)
            patch.setattr(StandIn, "is_done", lambda self, event: not self.is_late)
            with pytest.raises(ValueError, match="it fails"):
                model(batch(0)).backward()
        hook.remove()
        if not isinstance(tierd.torch.job_of(model).memory, Device):
            held.clear()
        for each in tierd.torch.job_of(model)._hooks._passes.values():
            gpu.setattr(each.over, "wait", held.clear)
        optimizer.zero_grad()
        assert not held
        plainly(model, optimizer)


def fails(gradient: Tensor) -> None:
    raise ValueError("it fails")


def test_nothing_is_left_of_a_job_that_is_closed(gpu: pytest.MonkeyPatch, job: str) -> None:
    model = make()
    optimizer = put(model, job)
    plainly(model, optimizer)
    model(batch(0)).backward()
    stand_in, addresses = stand_in_of(model), tierd.torch.job_of(model).addresses
    end(model, job)
    assert not stand_in.pins
    assert not addresses
    assert stand_in.in_use() == 0


# ---- Which GPU, and what is refused


@pytest.mark.parametrize(
    ("where", "error", "sentence"),
    [
        ("mps", tierd.torch.Error, "device is 'mps'"),
        ("gpu", tierd.torch.Error, "device is 'gpu'"),
        (1, TypeError, 'device is 1: such as "cuda"'),
        ("cuda:2", tierd.torch.Error, "device is cuda:2, and there are 2"),
    ],
)
def test_a_device_that_is_none_is_refused(
    gpu: pytest.MonkeyPatch, job: str, where: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        put(make(), job, device=where)


def test_a_torch_that_finds_no_gpu_is_named(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(tierd.torch.Error, match="PyTorch finds none; CUDA_VISIBLE_DEVICES is '7'") as caught:
        put(make(), job)
    assert caught.value.errno == errno.ENODEV
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(tierd.torch.Error, match="wants a PyTorch with CUDA"):
        put(make(), job)


def test_each_rank_of_a_node_has_a_gpu_of_its_own(gpu: pytest.MonkeyPatch) -> None:
    for rank, index in (("0", 0), ("1", 1), ("2", 0)):
        gpu.setenv("LOCAL_RANK", rank)
        assert device.choose(make(), "cuda") == torch.device("cuda", index)
    assert device.choose(make(), "cuda:0") == torch.device("cuda", 0)
    assert device.choose(make(), None) == torch.device("cpu")


def test_a_model_on_several_devices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Placed(nn.Module):
        def named_parameters(self, *_: Any, **__: Any) -> Any:
            where = {"first": "cuda:0", "second": "cuda:1"}
            return [(name, SimpleNamespace(device=torch.device(place), is_meta=False)) for name, place in where.items()]

    with pytest.raises(tierd.torch.Error, match="first is on cuda:0 and second on cuda:1"):
        device.choose(Placed(), None)


def test_buffers_are_moved_to_where_the_model_is_computed() -> None:
    model = make()
    device.move_buffers(model, torch.device("meta"))
    assert all(buffer.is_meta for buffer in model.buffers())
    assert not any(parameter.is_meta for parameter in model.parameters())


def test_random_states_of_gpus_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [torch.tensor([7]), torch.tensor([8])]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [state.clone() for state in states])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, number: states.__setitem__(number, state))
    kept = kept_of_model.Kept(make())
    kept.begin()
    first = kept.blobs()[kept_of_model.RANDOM]
    assert kept_of_model.RANDOM not in kept.blobs()
    states[0] = torch.tensor([9])
    assert kept_of_model.RANDOM in kept.blobs()
    kept_of_model.set_random_states(kept_of_model.unpack(first, ""))
    assert states == [torch.tensor([7]), torch.tensor([8])]


def test_a_quantized_model_is_refused(gpu: pytest.MonkeyPatch, job: str) -> None:
    model = make()
    model.blocks[3].get_parameter("0.weight").quant_state = object()  # type: ignore[attr-defined]
    with pytest.raises(tierd.torch.Error, match=r"blocks\.3\.0\.weight is quantized by bitsandbytes"):
        put(model, job)


def test_a_capture_is_refused(gpu: pytest.MonkeyPatch, job: str) -> None:
    model = make()
    optimizer = put(model, job)
    stand_in_of(model).is_capturing = True
    with pytest.raises(tierd.torch.Error, match=r"blocks\.0 is gathered within the capture of a CUDA graph"):
        model(batch(0))
    stand_in_of(model).is_capturing = False
    plainly(model, optimizer)
