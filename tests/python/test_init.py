"""Models that are made, and loaded, without the memory for them: with the bits, and the random numbers, of plain
construction."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tierd.torch as tierd
from compare import assert_same_bits
from forked import start_ranks
from models import CASES, Case
from tierd import Error
from tierd.torch import pages, scratch
from tierd.torch.scratch import is_scratch
from training import update

MIB = 1 << 20


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where files would be seen; small parameters count as large."""
    monkeypatch.setattr(scratch, "LEAST_BYTES", 256)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def resident(folder: Path) -> int:
    """Bytes of files in the folder that are in this process' memory."""
    gc.collect()
    size, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_ours = str(folder) in line
        elif is_ours and line.startswith("Rss:"):
            size += int(line.split()[1]) << 10
    return size


def made(build: Callable[[], Any], is_plain: bool) -> tuple[Any, torch.Tensor]:
    """A model, and the random number that follows it."""
    torch.manual_seed(3)
    if is_plain:
        return build(), torch.rand(1)
    with tierd.init():
        model = build()
    return model, torch.rand(1)


# ---- Construction


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_model_has_the_bits_of_plain_construction(case: Case) -> None:
    (model, after), (plain, plain_after) = made(case.build, False), made(case.build, True)
    assert_same_bits(model, plain)
    assert torch.equal(after, plain_after)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
    large = [item for item in model.parameters() if item.nbytes >= scratch.LEAST_BYTES]
    # What shares memory with another tensor stays where it is, as LSTM's weights in some versions.
    assert any(is_scratch(item) for item in large)


def test_what_is_not_worked_on_leaves_the_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "WINDOW_BYTES", MIB)
    with tierd.init():
        model = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(8)))
        assert 0 < resident(folder) <= 2 * MIB
        # A second initialization, as transformers has.
        for layer in model:
            nn.init.normal_(layer.get_parameter("weight"))
        assert 0 < resident(folder) <= 2 * MIB
    assert resident(folder) == 0
    assert all(parameter.std() > 0.9 for parameter in model.parameters())


def test_what_is_being_made_is_waited_for_before_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Making:
        """Pages that another thread is about to make."""

        def cancel(self) -> bool:
            return False

        def result(self) -> None:
            events.append("made")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", lambda *arguments: Making())
    monkeypatch.setattr(pages, "take_out", lambda *arguments: events.append("out"))
    with tierd.init():
        nn.Linear(64, 64)
    assert events == ["made", "out"] * (len(events) // 2)
    assert events


class Kept(nn.Module):
    """Has the memory of its parameter under another name, too."""

    def __init__(self) -> None:
        super().__init__()
        values = torch.empty(64, 64)
        self.weight = nn.Parameter(values)
        self.other = nn.Parameter(torch.randn(64, 64))
        values.normal_()


def test_memory_that_somebody_else_has_is_left_alone_until_it_is_nobody_elses() -> None:
    model, plain = made(Kept, False)[0], made(Kept, True)[0]
    assert_same_bits(model, plain)
    assert is_scratch(model.weight)
    assert is_scratch(model.other)


def used() -> Any:
    """Parameters are tied, sliced, printed, written, computed with and converted, all before there is a job."""
    model: Any = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32))
    model[1].weight = model[0].weight
    with torch.no_grad():
        model[2].weight[3:5].fill_(2.0)
        model[2].weight.mul_(model[0].weight.norm())
        model[0].bias.copy_(model(torch.rand(4, 32))[0])
    str(model[0].weight)
    model.register_parameter("large", nn.Parameter(model[2].weight[4:, :].detach()))
    return model.to(torch.bfloat16)


def test_parameters_can_be_used_as_they_are_made() -> None:
    model, plain = made(used, False)[0], made(used, True)[0]
    assert_same_bits(model, plain)
    assert model[0].weight is model[1].weight
    assert is_scratch(model[0].weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.rand(2, 32).bfloat16()).sum().backward()
    optimizer.step()
    assert not torch.equal(model[2].weight, plain[2].weight)


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        raise ValueError("no second one")


def test_a_construction_that_fails_leaves_nothing(folder: Path) -> None:
    with pytest.raises(ValueError, match="no second one"), tierd.init():
        Failing()
    gc.collect()
    assert str(folder) not in Path("/proc/self/maps").read_text()
    # And whatever is made later is made as ever.
    assert not is_scratch(nn.Linear(64, 64).weight)


def test_a_folder_without_room_is_named(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(Error, match=f"{folder} has no room .*scratch=") as caught, tierd.init():
        nn.Linear(64, 64)
    assert caught.value.errno == 28
    with pytest.raises(Error, match="no folder that can be written to"), tierd.init(scratch="/nowhere"):
        pass


# ---- With a job


def train(model: nn.Module, job: str, optimizer: torch.optim.Optimizer, steps: int = 2) -> dict[str, torch.Tensor]:
    tierd.initialize(model, optimizer, job=job, random_states=False)
    for step in range(steps):
        batch = torch.rand(4, 64, generator=torch.Generator().manual_seed(step))
        update(model(batch).square().mean(), optimizer)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    tierd.close(model)
    return values


def layers() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)) for _ in range(3)))


def test_a_job_takes_the_values_and_the_files_go(folder: Path) -> None:
    results = []
    for is_plain in (True, False):
        model = made(layers, is_plain)[0]
        results.append(train(model, f"init-{is_plain}", torch.optim.SGD(model.parameters(), lr=0.1)))
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())
    gc.collect()
    assert str(folder) not in Path("/proc/self/maps").read_text()


def test_a_job_that_exists_gives_its_values_to_a_model_without_any() -> None:
    model = made(layers, True)[0]
    values = train(model, "init-meta", torch.optim.SGD(model.parameters(), lr=0.1))
    with tierd.init(values=False):
        model = layers()
    parameters = list(model.parameters())
    assert all(parameter.is_meta for parameter in parameters)
    parameters[0].mark = "kept"  # type: ignore[attr-defined]
    found = train(model, "init-meta", torch.optim.SGD(parameters, lr=0.1), steps=0)
    assert all(torch.equal(value, found[name]) for name, value in values.items())
    assert all(mine is theirs for mine, theirs in zip(parameters, model.parameters(), strict=True))
    assert parameters[0].mark == "kept"  # type: ignore[attr-defined]


def test_a_new_job_is_refused_values_that_are_not_there() -> None:
    with tierd.init(values=False):
        model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(Error, match=r"0\.0\.weight is on meta \(12 of 12 parameters are\).*from_pretrained"):
        tierd.initialize(model, optimizer, job="init-none")
    # It can still be given some.
    assert all(parameter.is_meta for parameter in model.parameters())
    with torch.device("meta"):
        model = layers()
    with pytest.raises(Error, match=r"buffer 0\.1\.running_mean is on meta"):
        tierd.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job="init-none")


def start_rank() -> None:
    torch.manual_seed(5)
    with tierd.init():
        model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(3)))
    after = torch.rand(1).item()
    without = sum(parameter.is_meta for parameter in model.parameters())
    tierd.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), job="init-ranks")
    print(after, sum(value.double().sum().item() for value in model.state_dict().values()), without)


def test_other_ranks_keep_no_values() -> None:
    first, second = (rank.result().split() for rank in start_ranks(2, start_rank))
    assert first[:2] == second[:2]
    assert (first[2], second[2]) == ("0", "6")


# ---- Checkpoints


def text_model(**options: object) -> nn.Module:
    """A GPT-2 whose head is tied to its embedding."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=67, n_positions=16, n_embd=24, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model: nn.Module = transformers.AutoModelForCausalLM.from_config(config, **options)
    return model.eval()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    """A model, and a checkpoint of it in several files."""
    torch.manual_seed(11)
    model, path = text_model(), tmp_path_factory.mktemp("stored")
    model.save_pretrained(path, max_shard_size="20KB")  # type: ignore[operator]
    assert len(list(path.glob("*.safetensors"))) > 2
    return model, path


@pytest.mark.parametrize("kind", ["init", "meta", "plain"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_checkpoint_is_loaded_and_trained(
    kind: str, dtype: torch.dtype, stored: tuple[nn.Module, Path], folder: Path
) -> None:
    source, path = stored
    torch.manual_seed(12)
    if kind == "plain":
        model = text_model(dtype=dtype)
    else:
        with tierd.init(values=kind == "init"):
            model = text_model(dtype=dtype)
    parameters = list(model.parameters())
    assert tierd.from_pretrained(model, path) == ([], [])
    expected = text_model(dtype=dtype)
    expected.load_state_dict(source.state_dict())
    assert_same_bits(model, expected)
    assert all(mine is theirs for mine, theirs in zip(parameters, model.parameters(), strict=True))
    if dtype == torch.float32 and kind != "plain":
        # The files' own memory, without a copy.
        assert not any(is_scratch(parameter) for parameter in parameters)
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    tierd.initialize(model, optimizer, job=f"loaded-{kind}-{dtype}")
    words = torch.arange(12).view(2, 6)
    assert torch.equal(model(words).logits, expected(words).logits)
    with pytest.raises(Error, match="on tierd already.*before initialize"):
        tierd.from_pretrained(model, path)


def test_writing_to_a_loaded_parameter_leaves_its_file_alone(stored: tuple[nn.Module, Path]) -> None:
    source, path = stored
    with tierd.init(values=False):
        model = text_model()
    tierd.from_pretrained(model, path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    del model
    with tierd.init(values=False):
        model = text_model()
    tierd.from_pretrained(model, path)
    assert_same_bits(model, source)


def test_what_has_been_read_leaves_the_memory_but_nothing_that_was_written(stored: tuple[nn.Module, Path]) -> None:
    source, path = stored
    with tierd.init(values=False):
        model = text_model()
    tierd.from_pretrained(model, path)
    assert_same_bits(model, source)
    assert resident(path) > 0
    for parameter in model.parameters():
        pages.rest(parameter)
    assert resident(path) == 0
    weight = model.get_parameter("transformer.wte.weight")
    with torch.no_grad():
        weight.add_(1.0)
    expected = weight.detach().clone()
    pages.rest(weight)
    assert torch.equal(weight, expected)
    memory = torch.rand(1 << 20)
    expected = memory.clone()
    pages.rest(memory)
    assert torch.equal(memory, expected)


def test_a_checkpoint_of_the_base_model_serves_the_whole_one(stored: tuple[nn.Module, Path], folder: Path) -> None:
    source = stored[0]
    source.base_model.save_pretrained(folder)  # type: ignore[operator, union-attr]
    model = text_model()
    assert tierd.from_pretrained(model, folder / "model.safetensors") == ([], [])
    assert_same_bits(model, source)
    base = text_model().base_model
    tierd.from_pretrained(base, stored[1])  # type: ignore[arg-type]
    assert_same_bits(base, source.base_model)  # type: ignore[arg-type]
    for path in folder.iterdir():
        path.unlink()


def test_transformers_own_loading_works_in_the_context(stored: tuple[nn.Module, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    source, path = stored
    with tierd.init():
        model = transformers.AutoModelForCausalLM.from_pretrained(path)
    assert_same_bits(model, source)
    assert all(is_scratch(item) for item in model.parameters() if item.nbytes >= scratch.LEAST_BYTES)


def save(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(tensors, path / "model.safetensors")
    return path


@pytest.fixture
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


def test_differences_are_listed_before_anything_is_changed(checkpoint: Path) -> None:
    model: Any = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tensors = {
        "0.weight": torch.ones(8, 4),
        "0.bias": torch.ones(8),
        "head": torch.ones(3),
        "1.weight": torch.ones(2, 8),
    }
    save(checkpoint, tensors)
    with pytest.raises(Error, match=r"only in the model: 1\.bias; .* only in the checkpoint: head.*strict=False"):
        tierd.from_pretrained(model, checkpoint)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert tierd.from_pretrained(model, checkpoint, strict=False) == (["1.bias"], ["head"])
    assert torch.equal(model[0].weight, tensors["0.weight"])
    assert torch.equal(model[1].bias, before["1.bias"])
    save(checkpoint, {**tensors, "0.weight": torch.ones(4, 8)})
    with pytest.raises(Error, match=r"0\.weight is \[4, 8\] there and \[8, 4\] in the model"):
        tierd.from_pretrained(model, checkpoint, strict=False)


def test_what_is_all_on_meta_gets_values_and_buffers(checkpoint: Path) -> None:
    plain = made(layers, True)[0]
    save(checkpoint, plain.state_dict())
    with torch.device("meta"):
        model = layers()
    buffers = list(model.buffers())
    tierd.from_pretrained(model, checkpoint)
    assert_same_bits(model, plain)
    assert all(mine is theirs for mine, theirs in zip(buffers, model.buffers(), strict=True))


def test_all_types_are_read_as_safetensors_reads_them(checkpoint: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    numbers = torch.arange(-6, 6)
    kinds = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
    kinds += ["int64", "int32", "int16", "int8", "uint8", "bool"]
    tensors = {f"of_{kind}": numbers.to(getattr(torch, kind)).view(3, 4).clone() for kind in kinds}
    tensors |= {"none": torch.zeros(0, 5), "scalar": torch.tensor(3.0), "odd": torch.ones(3, dtype=torch.uint8)}
    save(checkpoint, tensors)
    expected = library.load_file(checkpoint / "model.safetensors")
    model = nn.Module()
    for name, value in tensors.items():
        model.register_parameter(name, nn.Parameter(torch.zeros_like(value), requires_grad=False))
    model.register_buffer("buffer", torch.zeros(1))
    assert tierd.from_pretrained(model, checkpoint, strict=False) == (["buffer"], [])
    for name, value in expected.items():
        found = getattr(model, name)
        assert found.dtype == value.dtype, name
        assert torch.equal(
            found.view(torch.uint8) if found.dim() else found, value.view(torch.uint8) if value.dim() else value
        )


def test_files_that_are_wrong_are_named(checkpoint: Path) -> None:
    model = nn.Linear(4, 8)
    with pytest.raises(Error, match=f"{checkpoint} has no .*safetensors"):
        tierd.from_pretrained(model, checkpoint)
    file = save(checkpoint, {"weight": torch.ones(8, 4), "bias": torch.ones(8)}) / "model.safetensors"
    whole = file.read_bytes()
    for wrong in (b"", whole[:7], whole[:40], whole[:-1], b"\xff" * 64, whole[:8] + b"[" * (len(whole) - 8)):
        file.write_bytes(wrong)
        with pytest.raises(Error, match=r"model\.safetensors.*download it again"):
            tierd.from_pretrained(model, checkpoint)
    for before, after in (
        (b"data_offsets", b"data_offsetz"),
        (b'"F32"', b'"F99"'),
        (b"[8,4]", b"[8,5]"),
        (b"[8,4]", b"[-8,"[:5]),
    ):
        file.write_bytes(whole.replace(before, after))
        with pytest.raises(Error):
            tierd.from_pretrained(model, checkpoint)
    file.unlink()
    (checkpoint / "model.safetensors.index.json").write_text('{"weight_map": {"weight": "model-1.safetensors"}}')
    with pytest.raises(Error, match=r"model-1\.safetensors is missing"):
        tierd.from_pretrained(model, checkpoint)
