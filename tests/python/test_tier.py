"""Models whose parameters are in the GPU's memory that the daemon owns: the bits of the host's memory, and no race. Stand-ins play the
GPU, in children, which load its driver."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import compare
import tierd.torch
from conftest import Daemon
from forked import Child
from gpu_stand_in import StandIn, Stream
from test_cuda import Model, batch, fails, in_parts, plainly, put, with_evaluations, with_other_values
from tier_stand_in import Kernels, TierStandIn, compute_there
from tierd import _core
from tierd.torch import device
from tierd.torch.device import Device
from training import end, update

# Of its blocks no two are in one pack.
WIDTH = 13 * 64
BLOCK_BYTES = 4 * (WIDTH * WIDTH + WIDTH)
FEW_BYTES = 3 * BLOCK_BYTES + (1 << 20)

Run = Callable[..., str]
Loop = Callable[[nn.Module, Any], None]


@pytest.fixture
def there(gpu_daemon: Daemon, job: str) -> Run:
    """Runs a function of a job's name, and more, on the GPU; what it has printed on standard error."""

    def begin(work: Callable[..., object], *arguments: object) -> None:
        compute_there()
        with Kernels():  # type: ignore[no-untyped-call]
            work(*arguments)

    def run(
        work: Callable[..., object],
        *arguments: object,
        daemon: Daemon = gpu_daemon,
        meanwhile: Callable[[Child], None] = lambda child: None,
    ) -> str:
        child = Child(begin, work, job, *arguments, TIERD_SOCKET=str(daemon.socket))
        meanwhile(child)
        errors = child.communicate()[1]
        assert child.returncode == 0, errors + gpu_daemon.log.read_text()
        return errors

    return run


def make(width: int = WIDTH) -> Model:
    torch.manual_seed(7)
    return Model(width)


def memory_of(model: nn.Module) -> Device:
    memory = tierd.torch.job_of(model).memory
    assert isinstance(memory, Device)
    return memory


def stand_in_of(model: nn.Module) -> TierStandIn:
    stand_in: Any = memory_of(model)._cuda
    assert isinstance(stand_in, TierStandIn)
    return stand_in


def look(model: Model, *, copies_gradients: bool = False) -> None:
    """Nothing else is copied here, and no unit is held."""
    assert memory_of(model).has_tier
    assert stand_in_of(model).most == 0
    job = tierd.torch.job_of(model)
    assert job.core.leases() == 0
    assert list(stand_in_of(model).pins) == ([job.core.mappings()[1][0]] if copies_gradients else [])


# ---- The bits of the host's memory


def compare_bits(job: str, width: int, loops: list[Loop], gpu_budget: int, gradient_bytes: int | None = None) -> None:
    models: dict[str, Model] = {}
    for where, options in (("cuda", {"gpu_tier": True, "gpu_budget": gpu_budget}), ("cpu", {"gpu_tier": None})):
        models[where] = make(width)
        name = f"{where}-{job[-50:]}"
        optimizer = put(models[where], name, device=where, gradient_bytes=gradient_bytes, **options)
        for loop in loops:
            loop(models[where], optimizer)
    look(models["cuda"])
    compare.assert_same_bits(*models.values())


@pytest.mark.parametrize(
    ("width", "loops", "gpu_budget", "gradient_bytes"),
    [
        (64, [with_evaluations, with_other_values], 0, None),
        (WIDTH, [in_parts], FEW_BYTES + 2 * BLOCK_BYTES, 2 * BLOCK_BYTES),
    ],
    ids=["all", "few"],
)
def test_loops_get_every_bit(
    there: Run, width: int, loops: list[Loop], gpu_budget: int, gradient_bytes: int | None
) -> None:
    assert there(compare_bits, width, loops, gpu_budget, gradient_bytes) == ""


def use_another_stream(job: str) -> None:
    """While a unit is there. There is no room for gradients."""
    model = make()
    optimizer = put(model, job, gpu_tier=True, gpu_budget=FEW_BYTES)
    stand_in = stand_in_of(model)

    def read(module: nn.Module, arguments: object) -> None:
        with stand_in.computing_on(Stream(is_copying=False)):
            model.blocks[4](torch.zeros(1, WIDTH))

    hook = model.blocks[4].get_submodule("1").register_forward_pre_hook(read)
    model.blocks[4].get_submodule("1").register_forward_pre_hook(lambda *_: hook.remove(), prepend=True)
    plainly(model, optimizer)
    look(model, copies_gradients=True)


def test_a_second_stream_is_waited_for(there: Run) -> None:
    assert "gradients are copied to host memory by PyTorch" in there(use_another_stream)


def change_streams(model: nn.Module, optimizer: Any) -> None:
    """A backward fails on one, and the next one is on another."""
    streams = [Stream(is_copying=False), Stream(is_copying=False)]
    for number in range(4):
        is_on_gpu = isinstance(tierd.torch.job_of(model).memory, Device)
        with stand_in_of(model).computing_on(streams[number % 2]) if is_on_gpu else nullcontext():
            update(model(batch(number)), optimizer)
            # Nothing is pushed before.
            name = ("weight", "bias")[number // 2]
            hook = model.get_submodule("norm").get_parameter(name).register_hook(fails)
            with pytest.raises(ValueError, match="it fails"):
                model(batch(number)).backward()
            hook.remove()
        optimizer.zero_grad()


def test_gradients_on_several_streams_get_every_bit(there: Run) -> None:
    one_unit = 4 * (64 * 64 + 256)
    there(compare_bits, 64, [change_streams], 0, one_unit)


def go_back(model: nn.Module, optimizer: Any, crash: Callable[[], None]) -> None:
    crashes = [crash]
    for number in tierd.torch.resumable(range(4), model=model):
        loss = model(batch(number))
        if number == 2 and crashes:
            crashes.pop()()
        update(loss, optimizer)


def go_on(model: nn.Module, optimizer: Any, crash: Callable[[], None]) -> None:
    plainly(model, optimizer)
    _, ticket = tierd.torch.job_of(model)._last or pytest.fail("there is no step")
    ticket.wait(_core.DURABLE)
    crash()
    plainly(model, optimizer)


def outlive_daemons(job: str, crash: Callable[[], None]) -> None:
    """One that does not have the last step, and one that has."""
    for loop, durability in ((go_back, 3600), (go_on, "step")):
        models = [make(64), make(64)]
        gpu = put(models[0], f"{durability}-{job[-50:]}", gpu_tier=True, durability=durability)
        loop(models[0], gpu, crash)
        look(models[0])
        loop(models[1], put(models[1], f"cpu-{durability}-{job[-50:]}", device="cpu", gpu_tier=None), lambda: None)
        compare.assert_same_bits(*models)


def test_a_job_goes_on_with_another_daemon(there: Run, gpu_daemon: Daemon) -> None:
    awaited, restarted = os.pipe()

    def crash() -> None:
        print("crash", flush=True)
        os.read(awaited, 1)

    def restart(child: Child) -> None:
        for line in child.stdout:
            assert line == "crash\n"
            gpu_daemon.kill()
            gpu_daemon.start()
            os.write(restarted, b".")

    assert there(outlive_daemons, crash, meanwhile=restart).count("the training goes back to step") == 1


# ---- What is where


def keep_a_view(job: str) -> None:
    model = make(64)
    optimizer = put(model, job, gpu_tier=True)
    kept: list[Tensor] = []
    hook = model.blocks[4].register_forward_pre_hook(
        lambda *_: kept.append(model.blocks[4].get_parameter("0.weight").detach())
    )
    update_fails(model, optimizer, "weight blocks.4.0.weight")
    assert kept[0].data_ptr() in TierStandIn.shown
    hook.remove()
    kept.clear()
    optimizer.step()
    optimizer.zero_grad()
    plainly(model, optimizer)
    look(model)
    stand_in = stand_in_of(model)
    end(model, job)
    assert not stand_in.pins
    assert stand_in.in_use() == 0


def update_fails(model: nn.Module, optimizer: Any, said: str) -> None:
    model(batch(0)).backward()
    with pytest.raises(tierd.torch.Error, match=said) as caught:
        optimizer.step()
    assert caught.value.errno == errno.EBUSY


def test_a_step_is_refused_while_a_view_of_a_weight_is_kept(there: Run) -> None:
    there(keep_a_view)


# ---- Without a tier


def copy_instead(job: str, said: str) -> None:
    for gpu_tier in (None, False):
        model = make(64)
        optimizer = put(model, f"{gpu_tier}-{job[-50:]}", gpu_tier=gpu_tier)
        plainly(model, optimizer)
        assert not memory_of(model).has_tier
        assert stand_in_of(model).most > 0
    with pytest.raises(tierd.torch.Error, match=said) as caught:
        put(make(64), job, gpu_tier=True)
    assert caught.value.errno == errno.EOPNOTSUPP


def test_units_are_copied_where_the_daemon_has_no_gpu_and_a_line_says_why(there: Run, daemon: Daemon) -> None:
    said = "no memory on GPU 0: .*libcuda"
    lines = there(
        copy_instead, f"gpu_tier=True: .*{said}.*; gpu_tier=None copies units instead", daemon=daemon
    ).splitlines()
    assert len(lines) == 1
    assert re.match(f"tierd: cpu: each unit is copied to memory of PyTorch's: .*{said}", lines[0])


def test_units_are_copied_where_this_process_has_no_driver(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "Cuda", StandIn)
    model = make(64)
    plainly(model, put(model, job, gpu_tier=None))
    assert "cuda:0: each unit is copied to memory of PyTorch's: there is no GPU 0" in capsys.readouterr().err
    with pytest.raises(tierd.torch.Error, match="there is no GPU 0") as caught:
        put(make(64), "required", gpu_tier=True)
    assert caught.value.errno == errno.ENODEV


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "cpu", "gpu_tier": True}, "gpu_tier=True is for .* and the model is computed on the processor"),
        ({"device": "cpu", "gpu_budget": "1G"}, "gpu_budget is for"),
        ({"gpu_tier": False, "gpu_budget": 1}, "gpu_budget is for .* and gpu_tier=False wants none"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    job: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(device, "Cuda", StandIn)
    with pytest.raises(tierd.torch.Error, match=said):
        put(make(64), job, **options)
    with pytest.raises(TypeError, match="gpu_tier is 1"):
        put(make(64), job, gpu_tier=1)
    with pytest.raises(TypeError, match="has no argument 'gpu': say device="):
        put(make(64), job, gpu=0)
