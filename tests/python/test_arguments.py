"""What users pass is checked: errors are sentences that name the argument, what was given and what is wanted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import compare
import tierd
import tierd.torch
from conftest import Daemon
from tierd import daemon as daemons
from tierd.torch.units import choose
from training import update


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.tanh(self.inner(x))
        return y


def small(width: int = 4) -> nn.Sequential:
    return nn.Sequential(Block(), nn.Linear(4, width), nn.Linear(width, 1))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def initialize(job: str, model: Any = None, optimizer: Any = None, **options: Any) -> tuple[Any, Any]:
    model = small() if model is None else model
    return tierd.torch.initialize(model, sgd(model) if optimizer is None else optimizer, job=job, **options)


def refuse(kind: type[Exception], sentence: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=sentence):
        call()


# ---- Optimizers


def test_parameters_that_share_memory_are_refused() -> None:
    """Plain PyTorch would update the memory once for each of them."""
    for begin, end in ((0, 4), (2, 6)):
        model, memory = small(), torch.zeros(8, 4)
        model[1].weight = nn.Parameter(memory[:4])
        model.register_parameter("late", nn.Parameter(memory[begin:end]))
        refuse(tierd.Error, "share memory, and tierd keeps each", lambda model=model: initialize("t", model))  # type: ignore[misc]
    model = small()
    model.register_buffer("seen", dict(model.named_parameters())["1.weight"].detach()[2])
    refuse(tierd.Error, r"^\[Errno 22\] 1\.weight and seen share memory", lambda: initialize("t", model))
    # What lies beside each other in the same memory, and what is not trained.
    model, memory = small(), torch.zeros(4, 8)
    model[1].weight = nn.Parameter(memory[:, :4])
    model.register_parameter("other", nn.Parameter(memory[:, 4:]))
    for name in ("one", "two"):
        model.register_parameter(name, nn.Parameter(torch.zeros(0)))
        model.register_parameter(f"frozen_{name}", nn.Parameter(memory[:, 4:].detach()[:0], requires_grad=False))
    shared = torch.ones(3)
    model.register_buffer("left", shared)
    model.register_parameter("right", nn.Parameter(shared, requires_grad=False))
    initialize("beside", model)


def test_parameters_that_are_not_the_models_are_refused() -> None:
    model, other = small(), small()
    own, foreign = list(model.parameters()), list(other.parameters())
    none = "no parameter of SGD is one of this model's: make the optimizer over model.parameters()"
    refuse(tierd.Error, none, lambda: initialize("foreign", model, sgd(other)))
    refuse(tierd.Error, none, lambda: tierd.torch.plan(model, sgd(other)))
    groups = [{"params": own[:2]}, {"params": [own[2], foreign[4]]}, {"params": foreign[:2]}]
    for kind in (torch.optim.SGD, torch.optim.RMSprop):
        some = rf"3 of the 6 parameters of {kind.__name__} are not the model's, in groups 1, 2 \(one of shape \[1, 4\]\): put"
        optimizer = kind([dict(group) for group in groups], lr=0.1)
        refuse(tierd.Error, some, lambda optimizer=optimizer: initialize("foreign", model, optimizer))  # type: ignore[misc]
    twice = [torch.optim.SGD(own[:3], lr=0.1), torch.optim.AdamW(own[2:], lr=0.1)]
    refuse(tierd.Error, r"1\.weight is in SGD and in AdamW", lambda: initialize("foreign", model, twice))


def test_trainable_parameters_of_no_optimizer_stay_as_in_torch(capfd: pytest.CaptureFixture[str]) -> None:
    model, plain = small(), small()
    plain.load_state_dict(model.state_dict())
    optimizers = [torch.optim.SGD(each[1:].parameters(), lr=0.1) for each in (model, plain)]
    initialize("part", model, optimizers[0])
    listed = r"parameters that require gradients and are in no optimizer (0.inner.weight, 0.inner.bias): nothing updates them"
    assert listed in capfd.readouterr().err
    for each, optimizer in zip((model, plain), optimizers, strict=True):
        for _ in range(2):
            update(each(torch.ones(1, 4)).sum(), optimizer)
    compare.assert_same_bits(model, plain)
    ours, theirs = (next(each.parameters()).grad for each in (model, plain))
    assert ours is not None and theirs is not None and torch.equal(ours, theirs)
    refuse(
        tierd.Error,
        "without what requires gradients and is in no optimizer",
        lambda: tierd.torch.clip_grad_norm_(model.parameters(), 1.0),
    )


def test_a_frozen_model_needs_no_optimizer() -> None:
    model, plain = small().requires_grad_(False), small()
    plain.load_state_dict(model.state_dict())
    nothing: Any
    planned = tierd.torch.plan(model)
    assert str(planned).startswith("180 B that are frozen, in 2 units; 1 rank of stage 3\n")
    x = torch.ones(1, 4, requires_grad=True)
    for _ in range(2):  # it is made, and gone on with
        again, nothing = tierd.torch.initialize(model, job="reference")
        assert again is model and nothing is None
        assert torch.equal(model(x), plain(x))
        assert torch.equal(*(torch.autograd.grad(each(x).sum(), x)[0] for each in (model, plain)))
        assert tierd.torch.summary(model).host_bytes <= planned.host_bytes
        tierd.torch.close(model)
        model = small().requires_grad_(False)
    refuse(tierd.Error, "there is no optimizer", lambda: tierd.torch.initialize(small(), job="none"))
    refuse(tierd.Error, "optimizer is an empty list", lambda: initialize("none", optimizer=[]))
    refuse(tierd.Error, "the model has no parameters", lambda: tierd.torch.plan(nn.Tanh()))


def test_a_state_that_a_new_job_would_not_take_is_refused() -> None:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    optimizer.zero_grad()
    refuse(
        tierd.Error,
        r"AdamW has a state already.*optimizer\.state\.clear\(\)",
        lambda: initialize("s", model, optimizer),
    )
    optimizer.state.clear()
    initialize("state", model, optimizer)
    optimizer.load_state_dict(state)
    assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], state["state"][0]["exp_avg"])


# ---- Types, names, values


def test_what_is_of_a_wrong_type_is_named() -> None:
    model = small()
    swapped = r"^model is of type SGD: the model comes first, and optimizer is of type Sequential$"
    refuse(TypeError, swapped, lambda: tierd.torch.initialize(sgd(model), model, job="t"))  # type: ignore[arg-type]
    refuse(TypeError, swapped, lambda: tierd.torch.plan(sgd(model), model))  # type: ignore[arg-type]
    optimizer = r"of type generator: an optimizer is wanted, such as torch\.optim\.AdamW\(model\.parameters\(\)\)"
    refuse(TypeError, f"^optimizer is {optimizer}", lambda: initialize("t", model, model.parameters()))
    refuse(
        TypeError, rf"^optimizer\[1\] is {optimizer}", lambda: initialize("t", model, [sgd(model), model.parameters()])
    )
    refuse(TypeError, "^model is 'gpt'", lambda: tierd.torch.follow("gpt", job="t"))  # type: ignore[arg-type]
    refuse(TypeError, "^model is '/data'", lambda: tierd.torch.from_pretrained("/data", model))  # type: ignore[arg-type]
    refuse(TypeError, "^world_size is '2'", lambda: tierd.torch.plan(model, world_size="2"))  # type: ignore[arg-type]
    for wrong, sentence in {
        ("job", 3): "a text is wanted",
        ("stage", "3"): "a whole number is wanted",
        ("stage", True): "a whole number is wanted",
        ("reconnect_ms", 0.5): "a whole number is wanted",
        ("gradient_bytes", 1.5): "a whole number is wanted",
        ("gradient_buffers", "4"): "a whole number is wanted",
        ("strict", "yes"): "True or False is wanted",
        ("early_updates", "no"): "True or False is wanted",
        ("random_states", 0): "True or False is wanted",
        ("moments", None): "a text is wanted",
        ("loss_scale", "big"): "a number is wanted",
        ("max_grad_norm", "1.0"): "a number is wanted",
        ("units", "Block"): r'a list of names is wanted, such as \["Block"\]',
        ("socket", 3): "the path of a socket is wanted",
        ("config", 3): "the path of a configuration of DeepSpeed is wanted",
    }.items():
        name, value = wrong
        options: dict[str, Any] = {"job": "t", name: value}
        refuse(TypeError, f"^{name} is {value!r}: {sentence}", lambda options=options: initialize(**options))  # type: ignore[misc]


def test_an_unknown_name_is_an_error_with_what_comes_close() -> None:
    for name, hint in {
        "stag": ": did you mean stage?",
        "max_norm": ": did you mean max_grad_norm?",
        "host_buget": ": did you mean host_budget?",
        "clip_norm": ": say max_grad_norm=",
        "name": ": say job=",
        "zzz": "",
    }.items():
        options: dict[str, Any] = {name: 1}
        message = rf"^initialize\(\) has no argument '{name}'{hint.replace('?', '.')}$"
        refuse(TypeError, message, lambda options=options: initialize("names", **options))  # type: ignore[misc]
    refuse(
        TypeError,
        r"^plan\(\) has no argument 'worldsize': did you mean world_size\?$",
        lambda: tierd.torch.plan(small(), worldsize=2),
    )


def test_values_that_cannot_be_are_refused() -> None:
    for options, sentence in (
        ({"stage": 4}, "stage is 4: the stages of ZeRO are 0 to 3"),
        ({"max_grad_norm": -1}, r"max_grad_norm is -1\.0: a norm is above 0; 0 does not clip"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm is nan"),
        ({"world_size": 2}, "world_size is given, and rank is not"),
        ({"rank": 2, "world_size": 2}, "rank is 2, which is none of world_size=2"),
        ({"host_budget": "8GB"}, "host_budget is '8GB': a size is bytes, or a text such as \"8G\""),
        ({"host_budget": -1}, "host_budget is -1: a size is not negative"),
        ({"optimizer_placement": "ram"}, "optimizer_placement is 'ram': there are default, host, nvme, auto"),
    ):
        refuse(tierd.Error, sentence, lambda options=options: initialize("values", **options))  # type: ignore[misc]
    refuse(tierd.Error, "micro_batches is 0: it is 1 at least", lambda: tierd.torch.plan(small(), micro_batches=0))
    many = r"^\[Errno 22\] --world-size cannot be '9999'; it takes a number"
    refuse(tierd.Error, many, lambda: tierd.torch.plan(small(), world_size=9999))
    model, _ = initialize("clipped", max_grad_norm=float("inf"))
    for most in (-1.0, float("nan")):
        refuse(tierd.Error, "max_norm is", lambda most=most: tierd.torch.clip_grad_norm_(model.parameters(), most))  # type: ignore[misc]
    model(torch.ones(1, 4)).sum().backward()
    tierd.torch.job_of(model).optimizers[0].step()


def test_sizes_are_texts_and_placements_are_words_too() -> None:
    options: dict[str, Any] = {"host_budget": "128M", "gradient_bytes": "1m", "optimizer_placement": "host"}
    model, _ = initialize("words", durability="none", parameter_placement="host", **options)
    statistics = tierd.torch.job_of(model).core.statistics()
    assert (statistics["job_host_budget"], statistics["job_nvme_bytes"]) == (128 << 20, 0)
    assert tierd.torch.plan(small(), **options, parameter_placement="host").optimizer_on == "host"


def test_a_class_that_no_module_has_is_refused() -> None:
    wrong = r"units has 'Blokc', and no module .* is of such a class: did you mean Block\? \(there are Block, Linear\)"
    refuse(tierd.Error, wrong, lambda: initialize("units", units=["Linear", "Blokc"]))
    refuse(tierd.Error, wrong, lambda: tierd.torch.plan(small(), units=["Blokc"]))
    refuse(TypeError, "an element of units is <class .*: the name of a class", lambda: choose(small(), [Block]))  # type: ignore[list-item]
    # Of one without parameters, and of the whole model, none would become a unit.
    refuse(tierd.Error, "units has 'Sequential'", lambda: choose(small(), ["Sequential"]))


# ---- Calls after it


def test_resumable_looks_at_what_it_is_given_at_once() -> None:
    optimizer = initialize("loop")[1]
    loader = [torch.ones(1, 4)]
    state = r"an object is of type object: it is to have state_dict\(\) and load_state_dict\(\)"
    refuse(TypeError, state, lambda: tierd.torch.resumable(loader, object()))  # type: ignore[arg-type]
    refuse(TypeError, "loader is of type SGD", lambda: tierd.torch.resumable(optimizer, loader))  # type: ignore[arg-type]
    refuse(TypeError, "an iterator cannot begin again", lambda: tierd.torch.resumable(enumerate(loader)))
    assert len(list(tierd.torch.resumable(loader))) == 1


def test_save_makes_no_folders_but_the_last(tmp_path: Path) -> None:
    model, _ = initialize("saved")
    for path in (tmp_path / "typo" / "x", tmp_path / "typo" / "x.safetensors"):
        with pytest.raises(
            tierd.Error, match=f"there is no folder {tmp_path}/typo, where {path.name} is to lie"
        ) as raised:
            tierd.torch.save(path)
        assert raised.value.errno == errno.ENOENT
    refuse(tierd.Error, "NAME.safetensors, or a folder; torch.save", lambda: tierd.torch.save(tmp_path / "x.pt"))
    refuse(TypeError, "^path is of type OrderedDict", lambda: tierd.torch.save(model.state_dict()))
    assert list(tmp_path.iterdir()) == []


def test_what_keeps_a_job_from_going_on_is_said_with_a_remedy() -> None:
    places = {"parameter_placement": "host", "optimizer_placement": "host", "durability": "none"}
    model, optimizer = initialize("same", **places)
    refuse(tierd.Error, r"job same is open in this process: tierd\.close\(model\)", lambda: initialize("same"))
    tierd.torch.state["large"] = torch.zeros(9 << 20, dtype=torch.uint8)
    model(torch.ones(1, 4)).sum().backward()
    refuse(tierd.Error, r"blob \"tierd\.state\": .* initialize\(blob_bytes=…\)", optimizer.step)
    tierd.torch.state["large"] = object()
    refuse(tierd.Error, r"tierd\.state\['large'\] is of type object: numbers, strings", optimizer.step)
    tierd.torch.close(model)
    refuse(
        tierd.Error,
        "gradient_bytes is .* here, .* in the job.*: it was made with another model, or with other units=",
        lambda: initialize("same", small(2048), **places),
    )
    refuse(
        tierd.Error,
        "here, .* in the job; a job keeps its units: open it with the model that it was made of",
        lambda: initialize("same", small(2), **places),
    )


def test_the_private_daemon_of_this_process_is_found(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = initialize("private")
    tierd.torch.close(model)
    monkeypatch.delenv("TIERD_SOCKET")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    if daemons.find() is not None:
        pytest.skip("this machine has a tierd of its own")
    refuse(tierd.Error, "no tierd listens", lambda: tierd.torch.follow(small(), job="private"))
    monkeypatch.setitem(daemons._held, daemon.socket.parent, -1)
    with tierd.torch.follow(small(), job="private") as follower:
        assert follower.refresh() == 0
    assert tierd.torch.plan(small()).nvme_free_bytes > 0


def test_the_package_has_its_errors_and_its_state_is_not_replaced() -> None:
    assert (tierd.torch.Error, tierd.torch.StaleError) == (tierd.Error, tierd.StaleError)
    assert all(hasattr(tierd.torch, name) for name in tierd.torch.__all__)  # of import *, where there is no job yet
    refuse(AttributeError, "change what is in it", lambda: setattr(tierd.torch, "state", {"step": 1}))
    model, _ = initialize("module")
    tierd.torch.state["step"] = 1
    assert tierd.torch.job_of(model).kept.state == {"step": 1}
