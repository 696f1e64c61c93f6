"""Models on a GPU, where there is one. Two runs of these have the same bits; with the processor's they have the same numbers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import compare
import tierd.torch
from models import BY_NAME
from reference import Plan
from tierd.torch.device import Device
from tierd.torch.storage import Unit
from training import end, initialize, trained, update

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")

# cuBLAS has to know it before its first call.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

ROOT = Path(__file__).resolve().parents[2]
WIDTH, BLOCKS = 2048, 14
BLOCK_BYTES = 4 * (WIDTH * WIDTH + WIDTH)


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Each run computes the same, and has the whole GPU again in the end."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.cuda.set_per_process_memory_fraction(1.0)


class OnGpu(Plan):
    """One whose batches are on the GPU."""

    def losses(self, model: nn.Module, step: int) -> Iterable[Tensor]:
        for part in range(self.micro_batches):
            made = self.case.make_batch(step * self.micro_batches + part, self.seed, self.dtype)
            yield self.case.loss(model, {key: value.cuda() for key, value in made.items()}) / self.micro_batches


class Model(nn.Module):
    """Equal blocks, some of which are recomputed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=number == 1) if number in (1, 2) else block(x)
        loss: Tensor = self.dropout(self.norm(x)).square().mean()
        return loss


def put(job: str, **options: Any) -> tuple[Any, Any]:
    """A model and its optimizer."""
    torch.manual_seed(3)
    model = Model()
    return initialize(
        model, torch.optim.SGD(model.parameters(), lr=0.1), job, **({"device": "cuda", "gpu_tier": False} | options)
    )


def batch(number: int, where: str = "cuda") -> Tensor:
    made = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(number))
    return made.to(where).requires_grad_()


def train(model: nn.Module, optimizer: Any, steps: int = 3) -> None:
    for number in range(steps):
        update(model(batch(number)), optimizer)


def memory_of(model: nn.Module) -> Device:
    memory = tierd.torch.job_of(model).memory
    assert isinstance(memory, Device)
    return memory


def tidy() -> None:
    """Has cuBLAS take what it takes, and others nothing."""
    torch.ones(64, WIDTH, device="cuda") @ torch.ones(WIDTH, WIDTH, device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def limit(size: int) -> int:
    """Leaves so many bytes beside what there is already. What there may be then."""
    tidy()
    most = torch.cuda.memory_reserved() + size
    torch.cuda.set_per_process_memory_fraction(most / torch.cuda.get_device_properties("cuda").total_memory)
    return most


# ---- Numbers


@pytest.mark.parametrize("name", ["twice", "tied", "gpt2"])
def test_two_runs_have_the_same_bits_and_the_numbers_of_the_processor(name: str, job: str) -> None:
    """In the daemon's memory, and by copies."""
    sgd = partial(torch.optim.SGD, lr=0.05)
    first, second = (
        trained(OnGpu(BY_NAME[name], steps=4, micro_batches=2), sgd, f"{job}-{way}", device="cuda", gpu_tier=way)
        for way in (True, False)
    )
    compare.assert_losses_close(first.losses, second.losses, 0.0)
    compare.assert_same_bits(first.state, second.state)
    compare.assert_losses_close(
        first.losses, trained(Plan(BY_NAME[name], steps=4, micro_batches=2), sgd, job).losses, 1e-3
    )


@pytest.mark.parametrize("name", ["autocast", "scaler", "adagrad"])
def test_what_loops_do_has_the_same_bits_twice(name: str, job: str) -> None:
    found = []
    for i in "ab":
        torch.manual_seed(3)
        model = Model()
        kind = torch.optim.Adagrad if name == "adagrad" else torch.optim.AdamW
        made = kind(model.parameters(), lr=1e-3)
        optimizer: Any = initialize(model, made, f"{job}-{i}", device="cuda", gpu_tier=i == "a")[1]
        scaler = torch.amp.GradScaler("cuda", init_scale=64.0, enabled=name == "scaler")
        for number in range(3):
            with torch.autocast("cuda", torch.bfloat16, enabled=name == "autocast"):
                loss = model(batch(number))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        found.append(model.state_dict())
    compare.assert_same_bits(*found)
    assert all(value.isfinite().all() for value in found[0].values())


def test_random_states_and_buffers_of_the_gpu_come_back(job: str) -> None:
    model, optimizer = put(job)
    train(model, optimizer)
    state, mean = torch.cuda.get_rng_state(), model.norm.running_mean.clone()
    tierd.torch.close(model)
    torch.rand(7, device="cuda")
    model, optimizer = put(job)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert model.norm.running_mean.is_cuda
    assert torch.equal(model.norm.running_mean, mean)


# ---- Memory


def test_a_model_larger_than_what_there_is_of_the_gpu_is_trained(job: str) -> None:
    most = limit(10 * BLOCK_BYTES)
    model, optimizer = put(job, gradient_bytes=2 * BLOCK_BYTES)
    train(model, optimizer)
    assert torch.cuda.max_memory_reserved() <= most


def test_a_unit_that_does_not_fit_is_named_and_training_goes_on(job: str) -> None:
    model, optimizer = put(job)
    limit(BLOCK_BYTES // 2)
    with pytest.raises(tierd.torch.Error, match=r"unit blocks\.0 takes 16\.0 MiB, for which cuda:\d has no room"):
        model(batch(0))
    torch.cuda.set_per_process_memory_fraction(1.0)
    train(model, optimizer)


def test_units_are_copied_before_they_are_wanted(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = put(job)
    memory, wanted = memory_of(model), list[str]()
    fetch = memory._fetch

    def watch(unit: Unit) -> None:
        wanted.append(unit.name)
        fetch(unit)

    monkeypatch.setattr(memory, "_fetch", watch)
    for number in range(3):
        tierd.torch.job_of(model).finish()
        wanted.clear()
        update(model(batch(number)), optimizer)
    assert wanted == ["blocks.0"]


def test_gradients_are_copied_without_the_processor(job: str) -> None:
    model, _ = put(job)
    (_, gradients) = memory_of(model)._pinning.mappings
    assert gradients[0] in memory_of(model)._pinning._pinned


def test_all_is_given_back_with_the_job(job: str) -> None:
    tidy()
    before = torch.cuda.memory_allocated()
    model, optimizer = put(job)
    train(model, optimizer)
    tierd.torch.close(model)
    del model, optimizer
    tidy()
    assert torch.cuda.memory_allocated() <= before + (1 << 20)


# ---- Memory of the daemon's


def test_few_units_on_the_gpu_are_enough(job: str) -> None:
    """Also where other streams compute."""
    tidy()
    found = []
    for budget in (0, 4 * BLOCK_BYTES):
        name = f"{job[-50:]}-{budget}"
        model, optimizer = put(name, gpu_tier=True, gpu_budget=budget)
        assert memory_of(model).has_tier
        for number in range(3):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                update(model(batch(number)), optimizer)
            torch.cuda.current_stream().wait_stream(stream)
        found.append({key: value.cpu() for key, value in model.state_dict().items()})
        end(model, name)
    compare.assert_same_bits(*found)


def test_parameters_view_it_and_a_view_refuses_a_step(job: str) -> None:
    model, optimizer = put(job, gpu_tier=True)
    kept: list[Tensor] = []
    hook = model.blocks[4].register_forward_pre_hook(
        lambda *_: kept.append(next(model.blocks[4].parameters()).detach())
    )
    model(batch(0)).backward()
    hook.remove()
    with pytest.raises(tierd.torch.Error, match=r"shares memory with weight blocks\.4\.0\.weight"):
        optimizer.step()
    # It is none of PyTorch's.
    at = kept[0].data_ptr()
    assert not any(
        each["address"] <= at < each["address"] + each["total_size"] for each in torch.cuda.memory_snapshot()
    )
    kept.clear()
    optimizer.step()
    optimizer.zero_grad()
    train(model, optimizer)


def test_other_frameworks_take_it_by_dlpack(job: str) -> None:
    model, optimizer = put(job, gpu_tier=True)
    train(model, optimizer)
    tierd.torch.job_of(model).finish()
    core = tierd.torch.job_of(model).core
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream), core.gather_on(0, stream.cuda_stream) as lease, core.gather(0) as there:
            taken = torch.from_dlpack(lease[0])  # type: ignore[attr-defined]
            assert taken.is_cuda
            assert torch.equal(taken.cpu(), torch.from_dlpack(there[0]))  # type: ignore[attr-defined]
            del taken
    assert core.leases() == 0


# ---- Errors


def test_training_goes_on_after_a_backward_that_has_failed(job: str) -> None:
    def fails(gradient: Tensor) -> None:
        raise ValueError("it fails")

    model, optimizer = put(job)
    for _ in range(8):
        hook = model.blocks[0].get_parameter("0.bias").register_hook(fails)
        with pytest.raises(ValueError, match="it fails"):
            model(batch(0)).backward()
        hook.remove()
        optimizer.zero_grad()
        update(model(batch(1)), optimizer)


def test_a_gpu_that_is_not_there_and_a_capture_are_refused(job: str) -> None:
    with pytest.raises(tierd.torch.Error, match="device is cuda:99"):
        put(job, device="cuda:99")
    model, _ = put(job)
    x = batch(0)
    with pytest.raises(tierd.torch.Error, match="capture of a CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        model(x)


# ---- An example


def test_the_example_is_trained_and_goes_on(job: str, tmp_path: Path) -> None:
    flags = ["--device", "cuda", "--layers", "2", "--width", "64", "--context", "64", "--job", job]
    script = [sys.executable, str(ROOT / "examples" / "pytorch" / "pretrain.py"), str(ROOT / "README.md")]
    saved = tmp_path / "trained.pt"
    subprocess.run([*script, *flags, "--save", str(saved)], check=True)
    assert all(value.isfinite().all() for value in torch.load(saved).values())
    again = subprocess.run([*script, *flags], check=True, capture_output=True, text=True)
    assert "has taken all its steps" in again.stdout
