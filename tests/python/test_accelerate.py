"""Loops of Accelerate over a model on tierd: the same numbers as without it, on several ranks, and after a kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate  # type: ignore[import-untyped]
import pytest
import torch

import compare
import tierd
import tierd.torch
from forked import start_ranks


def accelerated(job: str | None, stop: int = -1) -> dict[str, torch.Tensor]:
    """The loop of docs/pytorch.md, with a pass whose last step has fewer micro-batches; rank 1 is killed after some."""
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler: Any = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20)
    data = torch.randn(24, 8, generator=torch.Generator().manual_seed(1))
    loader: Any = torch.utils.data.DataLoader(data, 3, shuffle=True)  # type: ignore[arg-type]
    seeded = accelerate.DataLoaderConfiguration(use_seedable_sampler=True, data_seed=5)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3, dataloader_config=seeded)
    if job is not None:
        model, optimizer = tierd.torch.initialize(model, optimizer, job=job)
        model = accelerator.prepare_model(model, device_placement=False, evaluation_mode=True)
        optimizer, loader = accelerator.prepare(optimizer, loader, device_placement=[False, True])
    else:
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(2):
        for batch in loader if job is None else tierd.torch.resumable(loader, scheduler):
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).square().mean())
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                scheduler.step()
            stop -= 1
            if stop == 0 and accelerator.process_index == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    values = accelerator.get_state_dict(model)
    if job is not None:
        tierd.torch.close()
    return {name.removeprefix("module."): value.clone() for name, value in values.items()}


def run(folder: Path, work: Callable[..., object], *more: Any) -> None:
    """In a child, which leaves what came of it."""
    accelerate.state.PartialState._reset_state()
    torch.save(work(*more), folder / os.environ["RANK"])


def both(folder: Path, work: Callable[..., object], *more: Any) -> list[dict[str, torch.Tensor]]:
    """What two ranks end with."""
    children = start_ranks(2, run, folder, work, *more)
    for child in children:
        child.result()
    return [torch.load(folder / str(rank)) for rank in range(2)]


def test_a_loop_of_accelerate_trains_on_several_ranks_and_goes_on_after_a_kill(tmp_path: Path, job: str) -> None:
    theirs = both(tmp_path, accelerated, None)
    ours = both(tmp_path, accelerated, job)
    for our, their in zip(ours, theirs, strict=True):
        compare.assert_close(our, their, 1e-6)
    for stop in (2, 5):
        first, second = start_ranks(2, run, tmp_path, accelerated, "accelerated", stop)
        second.assert_killed()
        first.kill()
        first.assert_killed()
    for our, killed in zip(ours, both(tmp_path, accelerated, "accelerated"), strict=True):
        compare.assert_same_bits(our, killed)


def saved_and_loaded(folder: Path, job: str) -> dict[str, torch.Tensor]:
    """What a rank ends with, which goes back to what it has saved, and trains on from there."""
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = tierd.torch.initialize(model, optimizer, job=job)
    model = accelerator.prepare_model(model, device_placement=False, evaluation_mode=True)
    optimizer = accelerator.prepare(optimizer, device_placement=[False])

    def train() -> dict[str, torch.Tensor]:
        for _ in range(2):
            inputs = torch.linspace(-1, 1 + accelerator.process_index, 32).view(4, 8)
            accelerator.backward(model(inputs).square().sum())
            optimizer.step()
            optimizer.zero_grad()
        values: dict[str, torch.Tensor] = model.state_dict()
        # The files have rank 0's.
        return values if accelerator.is_main_process else {key: values[key] for key, _ in model.named_parameters()}

    saved = train()
    accelerator.save_state(str(folder / "state"))
    later = train()
    accelerator.load_state(str(folder / "state"))
    loaded = model.state_dict()
    compare.assert_same_bits({name: loaded[name] for name in saved}, saved)
    compare.assert_same_bits(train(), later)
    return {name: later[name] for name, _ in model.named_parameters()}


def test_accelerate_saves_and_loads_values_and_moments(tmp_path: Path, job: str) -> None:
    accelerate.state.PartialState._reset_state()
    saved_and_loaded(tmp_path, job)
    first, second = both(tmp_path, saved_and_loaded, tmp_path / "both", "accelerated-both")
    compare.assert_same_bits(first, second)


def test_accelerate_prepares_no_scheduler_and_nothing_before_it_is_on_tierd(job: str) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    accelerator = accelerate.Accelerator(cpu=True)
    with pytest.raises(tierd.Error, match="AcceleratedOptimizer"):
        tierd.torch.initialize(model, accelerator.prepare(optimizer), job=job)
    with pytest.raises(tierd.Error, match="wrapped by DataParallel"):
        tierd.torch.initialize(torch.nn.DataParallel(model), optimizer, job=job)
    tierd.torch.initialize(model, optimizer, job=job)
    assert accelerator.prepare(model) is model
    scheduler = accelerator.prepare(torch.optim.lr_scheduler.ConstantLR(optimizer))
    with pytest.raises(tierd.Error, match="AcceleratedScheduler has a scheduler inside"):
        next(tierd.torch.resumable([], scheduler))
    loader: Any = torch.utils.data.DataLoader([1])  # type: ignore[arg-type]
    loader.synchronized_generator = torch.Generator()
    with pytest.raises(tierd.Error, match="use_seedable_sampler=True"):
        next(tierd.torch.resumable(loader))
