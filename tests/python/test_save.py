"""A model on tierd as files: what others load of them, and what there is in memory meanwhile."""

from __future__ import annotations

import io
import json
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tierd
import tierd.torch
from compare import assert_same_bits
from models import CASES
from tierd.torch.tensor_files import TensorFile
from training import initialize

safetensors = pytest.importorskip("safetensors.torch")


@pytest.fixture
def put(job: str) -> Callable[[nn.Module], nn.Module]:
    """Puts a model on tierd for the time of the test."""
    return lambda model: initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job)[0]


class Plain(nn.Module):
    """Tied weights, buffers, and all types that a frozen parameter may have."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32)) for _ in range(4))
        self.inward = nn.Embedding(40, 32)
        self.outward = nn.Linear(32, 40)
        self.outward.weight = self.inward.weight
        kinds = (torch.int64, torch.bool, torch.bfloat16, torch.float8_e4m3fn)
        self.frozen = nn.ParameterList(nn.Parameter(torch.ones(3).to(kind), requires_grad=False) for kind in kinds)
        self.empty = nn.Parameter(torch.zeros(0, 4), requires_grad=False)
        self.scalar = nn.Parameter(torch.tensor(7.0))


def test_a_file_has_what_the_model_has(put: Any, tmp_path: Path) -> None:
    model = put(Plain())
    path = tmp_path / "plain.safetensors"
    tierd.torch.save(path)
    loaded = safetensors.load_file(path)
    state = model.state_dict()
    assert_same_bits({**loaded, "outward.weight": loaded["inward.weight"]}, state)
    other = Plain()
    assert safetensors.load_model(other, path) == (set(), [])
    assert_same_bits(other, state)
    assert [file.name for file in path.parent.iterdir()] == ["plain.safetensors"]


def test_a_unit_at_a_time_is_gathered(put: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = put(Plain())
    units = tierd.torch.job_of(model).units
    shown = []
    write = TensorFile.write

    def count(self: TensorFile, name: str, value: torch.Tensor) -> None:
        shown.append(sum(unit._uses for unit in units))
        write(self, name, value)

    monkeypatch.setattr(TensorFile, "write", count)
    tierd.torch.save(tmp_path / "plain.safetensors")
    assert len(units) > 4
    assert max(shown) == 1


@pytest.mark.parametrize("name", ["gpt2", "mixtral"])
def test_transformers_loads_what_it_would_have_saved(put: Any, tmp_path: Path, name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    model = put(case.make_model())
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    tierd.torch.save(ours)
    assert not (ours / "model.safetensors.index.json").exists()
    tierd.torch.save(ours, max_file_bytes=50_000)
    model.save_pretrained(theirs)
    weights = {file.name: safetensors.load_file(file) for file in sorted(ours.glob("*.safetensors"))}
    assert len(weights) > 1
    assert [int(file.partition("-of-")[0][-5:]) for file in weights] == list(range(1, len(weights) + 1))
    index = json.loads((ours / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {tensor: file for file, tensors in weights.items() for tensor in tensors}
    together = {name: value for tensors in weights.values() for name, value in tensors.items()}
    assert_same_bits(together, safetensors.load_file(theirs / "model.safetensors"))
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in together.values())
    assert {file.name for file in theirs.iterdir()} - {file.name for file in ours.iterdir()} == {"model.safetensors"}
    assert_same_bits(type(model).from_pretrained(ours), model)
    tierd.torch.save(ours)
    assert {file.name for file in ours.iterdir()} == {file.name for file in theirs.iterdir()}


def test_a_full_disk_leaves_what_was_there(put: Any, tmp_path: Path) -> None:
    model = put(Plain())
    tierd.torch.save(tmp_path / "model")
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
    try:
        with pytest.raises(tierd.Error, match=r"is as before: the model takes [0-9,]+ bytes, and [0-9,]+ are free"):
            tierd.torch.save(tmp_path / "model", max_file_bytes=8_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert [file.name for file in (tmp_path / "model").iterdir()] == ["model.safetensors"]
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    with pytest.raises(tierd.Error, match="there is no folder .*model.safetensors, where below is to lie"):
        tierd.torch.save(tmp_path / "model" / "model.safetensors" / "below")
    assert torch.equal(model.state_dict()["scalar"], torch.tensor(7.0))


def test_a_step_that_has_failed_is_told_and_nothing_is_written(put: Any, tmp_path: Path) -> None:
    model = put(Plain())
    ((model.inward.weight * float("nan")).sum()).backward()
    (optimizer,) = tierd.torch.job_of(model).optimizers
    optimizer.step()
    with pytest.raises(tierd.Error, match="a NaN or an infinity"):
        tierd.torch.save(tmp_path / "plain.safetensors")
    assert not list(tmp_path.iterdir())
    tierd.torch.save(tmp_path / "plain.safetensors")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_each_long_call_is(put: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    terminal, file = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    model = put(Plain())
    for screen in (terminal, file):
        monkeypatch.setattr(sys, "stderr", screen)
        tierd.torch.save(tmp_path / "model", model=model)
        tierd.torch.from_pretrained(Plain(), tmp_path / "model")
    assert file.getvalue() == ""
    for what in ("writing values", "saving", "loading"):
        assert f"tierd: {what}: " in terminal.getvalue()


def test_a_state_dict_is_saved_by_torch_with_tied_weights_once(put: Any, tmp_path: Path) -> None:
    model = put(Plain())
    torch.save(model.state_dict(), tmp_path / "ours")
    torch.save(Plain().state_dict(), tmp_path / "theirs")
    sizes = [(tmp_path / name).stat().st_size for name in ("ours", "theirs")]
    assert abs(sizes[0] - sizes[1]) < 512
    assert_same_bits(torch.load(tmp_path / "ours", weights_only=True), model)
