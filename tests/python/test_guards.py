"""What may not be done to a model on tierd ends as an exception that names the parameter, and costs the job nothing."""

from __future__ import annotations

import copy
import ctypes
import importlib
import io
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import NoReturn, cast

import pytest
import torch
from torch import nn
from torch.distributed._composable import replicate  # type: ignore[attr-defined]
from torch.distributed._composable.fsdp import fully_shard  # type: ignore[attr-defined]
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.utils import parametrizations, parametrize
from torch.utils.data import DataLoader

import tierd.torch
from compare import assert_same_bits
from conftest import Daemon, interrupted
from tierd.torch import compat
from training import end, initialize, update


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(40, 40), nn.BatchNorm1d(40)) for _ in range(2)))
        self.lstm = nn.LSTM(40, 8)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def linear(self, block: int) -> nn.Linear:
        return cast(nn.Linear, cast(nn.Sequential, self.blocks[block])[0])

    def norm(self, block: int) -> nn.BatchNorm1d:
        return cast(nn.BatchNorm1d, cast(nn.Sequential, self.blocks[block])[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.lstm(self.blocks(x))[0].sum() * self.frozen.sum()
        return result


@pytest.fixture
def model(job: str) -> Model:
    torch.manual_seed(1)
    model = Model()
    initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job)
    return model


def train(model: nn.Module) -> None:
    model(torch.ones(4, 40)).backward()
    tierd.torch.job_of(model).optimizers[0].step()


def through_data(parameter: torch.Tensor) -> None:
    parameter.data.mul_(2)


def through_a_view(parameter: torch.Tensor) -> None:
    with torch.no_grad():
        parameter.detach().view(-1)[-1:].zero_()


def by_a_kernel(parameter: torch.Tensor) -> None:
    ctypes.memset(parameter.data_ptr() + 8, 1, 4)


def in_another_thread(parameter: torch.Tensor) -> None:
    view = parameter.detach()
    thread = threading.Thread(target=view.fill_, args=(2.0,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("write", [through_data, through_a_view, by_a_kernel], ids=lambda write: write.__name__)
def test_a_write_in_place_raises_and_is_undone(model: Model, write: Callable[[torch.Tensor], None]) -> None:
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        kept = model.linear(1).weight.detach()
        with pytest.raises(RuntimeError, match=r"blocks\.1\.0\.weight was written in place.*the write was undone"):
            write(model.linear(1).weight)
        assert torch.equal(kept, plain.linear(1).weight)
        del kept
        assert_same_bits(model, plain)
        train(model)
        update(plain(torch.ones(4, 40)), optimizer)
    assert tierd.torch.job_of(model).core.leases() == 0


def test_threads_of_a_kernel_write_to_many_blocks_and_all_is_undone(job: str) -> None:
    model = nn.Sequential(nn.Linear(1024, 4096), nn.Linear(4096, 1024))
    values = copy.deepcopy(model.state_dict())
    initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job)
    torch.set_num_threads(4)
    try:
        for parameter in model.parameters():
            with pytest.raises(RuntimeError, match="was written in place.*the write was undone"):
                parameter.data.mul_(2)
    finally:
        torch.set_num_threads(1)
    assert_same_bits(model, values)


def test_a_write_by_another_thread_raises_and_the_job_is_as_it_was(model: Model, job: str) -> None:
    values = model.state_dict()
    with pytest.raises(RuntimeError, match=r"blocks\.1\.0\.weight was written in place.*start it again"):
        in_another_thread(model.linear(1).weight)
    with pytest.raises(tierd.Error, match=r"blocks\.1\.0\.weight was written in place"):
        model(torch.ones(4, 40))
    tierd.torch.close(model)
    again = Model()
    initialize(again, torch.optim.SGD(again.parameters(), lr=0.1), job)
    assert_same_bits(again, values)


@pytest.mark.parametrize(
    "write",
    [
        nn.init.normal_,
        nn.init.kaiming_uniform_,
        nn.init.zeros_,
        lambda weight: torch._foreach_mul_([weight], 2.0),
        lambda weight: torch.add(torch.ones(40, 40), 1.0, out=weight),
        lambda weight: setattr(weight, "data", torch.ones(40, 40)),
    ],
    ids=["normal", "kaiming", "zeros", "foreach", "out", "data"],
)
def test_a_function_that_would_write_is_refused_and_costs_nothing(
    model: Model, write: Callable[[torch.Tensor], object]
) -> None:
    values = model.state_dict()
    with (
        torch.no_grad(),
        pytest.raises(
            RuntimeError, match=r"blocks\.1\.0\.weight is in the daemon's memory and cannot be written in place"
        ),
    ):
        write(model.linear(1).weight)
    assert_same_bits(model, values)
    train(model)


def test_a_model_whose_job_is_closed_is_refused(model: Model, job: str) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(tierd.Error, match="frozen is on tierd already"):
        initialize(model, optimizer, job)
    end(model, job)
    with pytest.raises(tierd.Error, match="frozen is on tierd already"):
        initialize(model, optimizer, job)


def test_a_forward_whose_gather_fails_leaves_nothing_behind(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    membership = tierd.torch.job_of(model).membership

    def fails(unit: int, name: str) -> NoReturn:
        raise tierd.Error(5, "it fails")

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        patch.setattr(membership, "capsules", fails)
        with pytest.raises(tierd.Error, match="it fails"):
            model(torch.ones(4, 40))
    train(model)
    assert membership.core.leases() == 0


def test_a_kernel_that_writes_while_the_unit_is_shown_raises(model: Model) -> None:
    def writes(module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        by_a_kernel(model.linear(0).weight)

    model.linear(0).register_forward_pre_hook(writes)
    with pytest.raises(RuntimeError, match=r"blocks\.0\.0\.weight was written in place"):
        model(torch.ones(4, 40))


@pytest.mark.parametrize(
    "change",
    [nn.Module.half, nn.Module.double, lambda model: model.to(torch.bfloat16), lambda model: model.to("meta")],
    ids=["half", "double", "bfloat16", "meta"],
)
def test_another_type_or_device_is_refused(model: Model, change: Callable[[nn.Module], nn.Module]) -> None:
    with pytest.raises(tierd.Error, match=r"frozen is torch.float32 on cpu in the daemon, and cannot become"):
        change(model)
    with pytest.raises(tierd.Error, match=r"blocks\.0\.0\.weight is"):
        change(model.blocks)
    train(model)


def test_a_device_that_is_not_there_is_refused_as_others_are(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> NoReturn:
        raise AssertionError("no driver\nhere")

    monkeypatch.setattr(torch.Tensor, "cuda", fails)
    with pytest.raises(
        tierd.Error, match=r"frozen is .* cannot become another \(no driver\): convert the model before"
    ):
        model.cuda()
    train(model)


class Sum(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.sum()


@pytest.mark.parametrize(
    "wait",
    [
        lambda model, values: model(torch.ones(4, 40)),
        lambda model, values: model.state_dict(),
        lambda model, values: model.load_state_dict(values),
        lambda model, values: tierd.torch.job_of(model).writing().__enter__(),
    ],
    ids=["forward", "state_dict", "load_state_dict", "writing"],
)
def test_ctrl_c_costs_the_job_nothing(
    job: str, daemon: Daemon, wait: Callable[[nn.Module, dict[str, torch.Tensor]], object]
) -> None:
    model = nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1), Sum())
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    # Without random states and buffers a step does not wait.
    initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job, random_states=False)
    for is_stopped in (False, True, True):
        update(plain(torch.ones(4, 40)), optimizer)
        if not is_stopped:
            train(model)
            tierd.torch.job_of(model).finish()
            continue
        with daemon.stopped():
            train(model)
            interrupted(lambda: wait(model, plain.state_dict()))
        for load in (lambda: None, lambda: model.load_state_dict(plain.state_dict())):
            load()
            values = model.state_dict()
            assert_same_bits(values, plain)
    assert tierd.torch.job_of(model).core.leases() == 0


def test_ctrl_c_in_a_step_leaves_its_gradients_to_zero_grad(model: Model, daemon: Daemon) -> None:
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(2):
        train(model)
        with daemon.stopped():
            interrupted(lambda: train(model))
        tierd.torch.job_of(model).optimizers[0].zero_grad()
        update(plain(torch.ones(4, 40)), optimizer)
        for name, value in plain.named_parameters():
            assert torch.equal(model.state_dict()[name], value), name


def test_a_torch_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.3.1+cpu")
    with pytest.raises(ImportError, match=r"tierd\.torch needs PyTorch 2\.4 or later, and .* is 2\.3\.1\+cpu"):
        importlib.reload(compat)


def test_what_changes_nothing_is_allowed(model: Model) -> None:
    assert model.to("cpu") is model
    assert model.float() is model
    assert model.to(torch.float32) is model
    train(model)


def test_a_copy_is_a_model_of_its_own(model: Model) -> None:
    values = model.state_dict()
    other = copy.deepcopy(model).half()
    assert other.linear(0).weight.dtype == other.norm(0).state_dict()["running_mean"].dtype == torch.float16
    assert model.norm(0).state_dict()["running_mean"].dtype == torch.float32
    assert torch.equal(other.state_dict()["lstm.weight_hh_l0"], values["lstm.weight_hh_l0"].half())
    other.float()(torch.ones(4, 40)).backward()
    assert tierd.torch.job_of(model).core.leases() == 0
    assert other.lstm.weight_hh_l0.grad is not None


def test_a_copy_is_a_plain_model_that_is_saved_and_loaded(model: Model) -> None:
    other = copy.deepcopy(model)
    assert not any(module._forward_pre_hooks or "state_dict" in vars(module) for module in other.modules())
    file = io.BytesIO()
    torch.save(other, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    train(model)
    assert torch.equal(loaded(torch.ones(4, 40)), other(torch.ones(4, 40)))
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    train(model)
    average.update_parameters(model)
    train(model)
    assert torch.isfinite(average(torch.ones(4, 40)))


@pytest.mark.parametrize("part", [lambda model: model, lambda model: model.blocks, lambda model: model.linear(1)])
def test_a_model_is_not_pickled_and_says_what_to_do(model: Model, job: str, part: Callable[[Model], nn.Module]) -> None:
    sentence = rf'Save model\.state_dict\(\).*tierd\.follow\(model, job="{job}"\)'
    with pytest.raises(tierd.Error, match=sentence):
        torch.save(part(model), io.BytesIO())
    with pytest.raises(tierd.Error, match=sentence):
        pickle.dumps(part(model))
    # To a worker that is spawned.
    with pytest.raises(tierd.Error, match=sentence):
        ForkingPickler.dumps(DataLoader(part(model)))  # type: ignore[arg-type]
    for change in (pickle.dumps, copy.deepcopy):
        with pytest.raises(tierd.Error, match=r"SGD on tierd cannot be .* save optimizer\.state_dict\(\)"):
            change(tierd.torch.job_of(model).optimizers[0])
    train(model)


def test_a_parameter_that_is_new_is_refused(model: Model) -> None:
    with pytest.raises(tierd.Error, match="parameter late is added to a Model after"):
        model.late = nn.Parameter(torch.ones(1))
    with pytest.raises(tierd.Error, match=r"parameter 2\.weight is added to a Sequential after"):
        model.blocks.append(nn.Linear(40, 40))
    # What it has, and what has no parameters, may come and go.
    model.linear(0).weight = model.linear(0).weight
    model.dropout = nn.Dropout()
    train(model)


def test_weights_that_are_tied_late_are_refused(model: Model) -> None:
    with pytest.raises(tierd.Error, match=r"blocks\.0\.0\.weight would become blocks\.1\.0\.weight after"):
        model.linear(0).weight = model.linear(1).weight
    train(model)


@pytest.fixture(scope="module")
def process_group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    "distribute",
    [
        nn.parallel.DistributedDataParallel,
        nn.DataParallel,
        lambda model: FullyShardedDataParallel(model, device_id=torch.device("cpu")),
        fully_shard,
        replicate,
    ],
    ids=["ddp", "data", "fsdp", "fully_shard", "replicate"],
)
def test_what_distributes_it_is_refused(
    model: Model, process_group: None, distribute: Callable[[nn.Module], nn.Module]
) -> None:
    for part in (model, model.blocks):
        with pytest.raises(tierd.Error, match=r"the model is on tierd, which distributes it.*Leave .* out"):
            distribute(part)
    train(model)


class Symmetric(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.triu() + values.triu(1).T


@pytest.mark.parametrize(
    "replace",
    [
        nn.utils.weight_norm,
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        lambda linear: parametrize.register_parametrization(linear, "weight", Symmetric()),
        lambda linear: nn.Parameter(linear.weight),
    ],
    ids=["weight_norm_of_old", "weight_norm", "spectral_norm", "orthogonal", "symmetric", "parameter"],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_another_parameter_is_not_made_of_one_and_it_stays_where_it_is(
    model: Model, replace: Callable[[nn.Module], object]
) -> None:
    values = model.state_dict()
    with pytest.raises(
        tierd.Error, match=r"made of blocks\.0\.0\.weight after tierd\.initialize\(\).*before initialize"
    ):
        replace(model.linear(0))
    assert type(model.linear(0)) is nn.Linear
    assert list(model.state_dict()) == list(values)
    train(model)
    replace(copy.deepcopy(model).linear(0))


def test_a_script_is_made_of_a_copy(model: Model) -> None:
    with pytest.raises(tierd.Error, match=r"torch\.jit\.script of a model on tierd.*copy\.deepcopy"):
        torch.jit.script(nn.Sequential(model.blocks))
    x = torch.ones(4, 40)
    assert torch.equal(torch.jit.script(copy.deepcopy(model.blocks))(x), copy.deepcopy(model.blocks)(x))
    train(model)


IN_A_THREAD = """
import sys, threading, torch
import tierd.torch
def work():
    model = torch.nn.Linear(2, 2)
    tierd.torch.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job=sys.argv[1])
    tierd.torch.close(model)
for _ in range(int(sys.argv[2])):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
work()
"""


@pytest.mark.parametrize("threads", [0, 1])
def test_a_job_of_another_thread_says_that_writes_are_not_caught(job: str, threads: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_THREAD, job, str(threads)], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("tierd: initialize() runs in another thread than the main one") == threads
