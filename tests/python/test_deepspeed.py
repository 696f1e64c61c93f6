"""Configurations of DeepSpeed: what they say counts, what tierd leaves out is said, what contradicts is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tierd
import tierd.torch
from tierd.torch import deepspeed
from training import initialize

CONFIG: dict[str, Any] = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "fp16": {"enabled": False, "loss_scale": 0},
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "allgather_bucket_size": 500000000,
        "overlap_comm": "auto",
    },
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1, "betas": [0.8, 0.9], "eps": "auto", "weight_decay": 0.0}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4}},
    "wall_clock_breakdown": False,
    "steps_per_print": 10,
}


def model_of_two() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    model[0].requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    return model


def test_a_configuration_says_what_arguments_say(job: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(CONFIG))
    model = model_of_two()
    optimizer: torch.optim.Optimizer
    _, optimizer = tierd.torch.initialize(model, config=path, job=job, rank=0, world_size=1)
    said = capfd.readouterr().err
    left_out = "scheduler.params.warmup_num_steps, scheduler.type, steps_per_print, "
    left_out += "zero_optimization.allgather_bucket_size, zero_optimization.offload_optimizer.pin_memory\n"
    assert said == f"tierd: of the configuration this is left out: {left_out}"
    assert type(optimizer).__name__ == "AdamW"
    assert (optimizer.defaults["betas"], optimizer.defaults["eps"]) == ((0.8, 0.9), 1e-8)
    assert [id(item) for item in optimizer.param_groups[0]["params"]] == [id(model[1].weight)]
    assert model[1].weight.dtype == torch.bfloat16
    model(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    norm = tierd.torch.job_of(model).coming
    optimizer.step()
    assert norm.clip_norm == 1.0
    assert norm.await_norm() == pytest.approx(8**0.5)
    # AdamW's first step is as long as the learning rate, whatever the gradient.
    assert model.state_dict()["1.weight"].tolist() == [[pytest.approx(0.9, abs=0.01)] * 2]


def changed(**sections: Any) -> dict[str, Any]:
    return {**CONFIG, "bf16": {"enabled": "auto"}, **sections}


@pytest.mark.parametrize(
    ("config", "arguments", "sentence"),
    [
        (changed(), {"stage": 3}, r"zero_optimization\.stage .* stage=2, but stage=3"),
        (changed(), {"max_grad_norm": 2.0}, r"gradient_clipping .* max_grad_norm=1\.0, but max_grad_norm=2\.0"),
        (changed(), {"world_size": 2}, r"train_batch_size is 16, but .* 4 × .* 4 × 2 ranks are 32"),
        (changed(fp16={"enabled": True}), {}, r"fp16\.enabled is true, but 1\.weight is torch\.float32"),
        (changed(bf16={"enabled": True}, fp16={"enabled": True}), {}, r"bf16\.enabled and fp16\.enabled are both true"),
        (changed(optimizer={"type": "Lamb"}), {}, r"optimizer\.type is Lamb"),
        (changed(optimizer={}), {}, "there is no optimizer"),
        (
            changed(zero_optimization={"offload_param": {"device": "nvme", "nvme_path": "/a"}}),
            {"nvme": "/b:1G"},
            r"offload_param\.nvme_path is /a, but nvme='/b:1G'",
        ),
        (changed(gradient_cliping=1.0), {}, "the configuration has 'gradient_cliping': did you mean gradient_clipping"),
        (changed(optimiser={"type": "SGD"}), {}, "the configuration has 'optimiser': did you mean optimizer"),
        (
            changed(zero_optimization={"offload_optimiser": {"device": "cpu"}}),
            {},
            "zero_optimization of the configuration has 'offload_optimiser': did you mean offload_optimizer",
        ),
        (changed(zero_optimization={"stage": "2"}), {}, "stage is '2': a whole number is wanted"),
    ],
)
def test_what_contradicts_is_refused(
    config: dict[str, Any], arguments: dict[str, Any], sentence: str, job: str
) -> None:
    with pytest.raises((tierd.Error, TypeError), match=sentence):
        tierd.torch.initialize(model_of_two(), config=config, job=job, **({"rank": 0, "world_size": 1} | arguments))


@pytest.mark.parametrize(
    ("optimizer", "sentence"),
    [
        (torch.optim.SGD, r"optimizer\.type is AdamW, which is AdamW, but optimizer is SGD"),
        (torch.optim.AdamW, r"optimizer\.params\.lr is 0\.1, but optimizer has lr=0\.5"),
    ],
    ids=["type", "rate"],
)
def test_an_optimizer_that_differs_is_refused(optimizer: type[Any], sentence: str, job: str) -> None:
    model = model_of_two()
    with pytest.raises(tierd.Error, match=sentence):
        initialize(model, optimizer(model.parameters(), lr=0.5), job, stage=2, config=changed())


def test_a_file_that_is_none_is_refused(tmp_path: Path, job: str) -> None:
    path = tmp_path / "ds_config.json"
    for written, kind, sentence in (
        ("stage: 3", tierd.Error, "which is JSON"),
        ("[3]", TypeError, "has is of type list"),
    ):
        path.write_text(written)
        with pytest.raises(kind, match=sentence):
            tierd.torch.initialize(model_of_two(), config=str(path), job=job, rank=0, world_size=1)


def test_a_scheduler_whose_parameter_is_misspelt_is_refused() -> None:
    config = {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_step": 4, "last_batch_iteration": -1}}}
    with pytest.raises(tierd.Error, match=r"scheduler\.params .* 'warmup_num_step': did you mean warmup_num_steps"):
        deepspeed.scheduler(config, torch.optim.SGD(model_of_two().parameters(), lr=2.0))


@pytest.mark.parametrize(
    ("kind", "rates"),
    [
        ("WarmupLR", [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0]),
        ("WarmupDecayLR", [0.0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25]),
        ("WarmupCosineLR", [0.0, 0.25, 0.5, 0.75, 0.8535681, 0.50005, 0.1465320, 0.0001]),
    ],
)
def test_a_scheduler_gives_the_rates_of_deepspeed(kind: str, rates: list[float]) -> None:
    optimizer = torch.optim.SGD(model_of_two().parameters(), lr=2.0)
    params = {"warmup_num_steps": 4, "total_num_steps": 8, "warmup_type": "linear", "warmup_max_lr": 2.0}
    scheduler = deepspeed.scheduler({"scheduler": {"type": kind, "params": params}}, optimizer)
    found = []
    for _ in rates:
        found.append(optimizer.param_groups[0]["lr"] / 2.0)
        optimizer.step()
        scheduler.step()
    assert found == pytest.approx(rates)
