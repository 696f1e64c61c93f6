"""What stays with the job's state beside its tensors: the model's buffers, random states, and what the trainer
wants kept.

It travels as blobs of this rank, with the step that is closed next, and only what has changed. A trainer that comes
back has it as it was after that step.
"""

from __future__ import annotations

import codecs
import errno
import io
import random
import sys
from typing import Any

import torch
from torch import nn

from tierd._core import Error, Job

BUFFERS, RANDOM, STATE = "tierd.buffers", "tierd.random", "tierd.state"

# Room for random states and for what the trainer keeps, of each rank.
ROOM = 1 << 20

# By which bytes are read. Newer versions of torch than 2.4 know by themselves that it runs no code of anybody's.
torch.serialization.add_safe_globals([codecs.encode])

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device)


class State(dict[str, Any]):
    """`tierd.state`: what a trainer keeps with the job: where it is in its data, best losses, states of schedulers.

    Values are numbers, strings, bytes, tensors, and lists, tuples and dicts of these. They count from the next
    `optimizer.step()` or `model.load_state_dict()` on.
    """


class Kept:
    """What is kept for one model."""

    def __init__(self, model: nn.Module, *, with_random_states: bool = True):
        self.state = State()
        self._model = model
        self._with_random_states = with_random_states
        self._versions: list[tuple[int, int]] | None = None
        self._states: dict[str, Any] | None = None
        self._sent_state: bytes | None = None
        self._at_first: dict[str, bytes] = {}

    def begin(self) -> None:
        """What there is now is that of a job without any step."""
        self.forget()
        self._at_first = self.buffers_blob()
        if self._with_random_states:
            self._at_first[RANDOM] = pack(random_states())
        self.forget()

    def bytes_needed(self, world_size: int) -> int:
        """Room for the blobs of all ranks: the same for all small numbers of them, which may change."""
        return max(world_size, 8) * (ROOM + sum(buffer.nbytes + 1024 for buffer in self.buffers().values()))

    def blobs(self) -> dict[str, bytes]:
        """What has changed since the last step."""
        blobs = {}
        states = random_states() if self._with_random_states else {}
        if states and not (self._states and _are_equal(states, self._states)):
            self._states = states
            blobs[RANDOM] = pack(states)
        if self.state or self._sent_state is not None:
            check_value(self.state, "tierd.state")
            blobs[STATE] = pack(dict(self.state))
        blobs |= self.buffers_blob()
        if blobs.get(STATE) == self._sent_state:
            blobs.pop(STATE, None)
        self._sent_state = blobs.get(STATE, self._sent_state)
        return blobs

    def buffers_blob(self) -> dict[str, bytes]:
        """The buffers, if they have changed since they were last sent."""
        buffers = self.buffers()
        versions = [(id(buffer), buffer._version) for buffer in buffers.values()]
        if versions == self._versions:
            return {}
        self._versions = versions
        return {BUFFERS: pack({name: buffer.detach().cpu() for name, buffer in buffers.items()})} if buffers else {}

    def forget(self) -> None:
        """Sends all of it with the next step."""
        self._versions = self._states = self._sent_state = None

    def restore(self, core: Job) -> None:
        """Takes everything as it was after the step at which the job stands."""
        self.forget()
        buffers = core.blob_get(BUFFERS) or self._at_first.get(BUFFERS)
        if buffers is not None:
            self._restore_buffers(unpack(buffers, f"the job's blob {BUFFERS}"))
        state = core.blob_get(STATE)
        self.state.clear()
        if state is not None:
            self.state.update(unpack(state, f"the job's blob {STATE}"))
        states = core.blob_get(RANDOM) or self._at_first.get(RANDOM)
        if states is not None and self._with_random_states:
            set_random_states(unpack(states, f"the job's blob {RANDOM}"))

    def restore_random(self, core: Job) -> None:
        """Sets random states as they were after the job's step, if it has any."""
        states = core.blob_get(RANDOM)
        if states is not None and self._with_random_states:
            set_random_states(unpack(states, f"the job's blob {RANDOM}"))

    def buffers(self) -> dict[str, torch.Tensor]:
        """The persistent ones, by name."""
        found = {}
        for prefix, module in self._model.named_modules():
            for name, buffer in module.named_buffers(prefix, recurse=False):
                if name.rpartition(".")[2] not in module._non_persistent_buffers_set:
                    found[name] = buffer
        return found

    def _restore_buffers(self, values: dict[str, torch.Tensor]) -> None:
        own = self.buffers()
        if own.keys() != values.keys():
            name = min(own.keys() ^ values.keys())
            whose = "the model" if name in own else "the job"
            raise Error(errno.EINVAL, f"only {whose} has a buffer {name}: they are not of the same architecture")
        with torch.no_grad():
            for name, buffer in own.items():
                buffer.copy_(values[name])


def pack(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def unpack(blob: bytes, name: str) -> dict[str, Any]:
    """Data alone: what another member of the job's group has put there runs no code."""
    value = torch.load(io.BytesIO(blob), weights_only=True)
    if not isinstance(value, dict):
        raise Error(errno.EINVAL, f"{name} is no dict: it was not written by tierd.torch")
    return value


def check_value(value: Any, name: str) -> None:
    """Raises where a value could be kept, but not be read again."""
    if isinstance(value, (*_PLAIN, torch.Tensor)):
        return
    if isinstance(value, dict):
        for key, item in value.items():
            check_value(key, f"a key of {name}")
            check_value(item, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple | set):
        for i, item in enumerate(value):
            check_value(item, f"{name}[{i}]")
    else:
        raise Error(
            errno.EINVAL,
            f"{name} is of type {type(value).__name__}: numbers, strings, tensors, lists and dicts can be kept",
        )


# ---- Random states


def random_states() -> dict[str, Any]:
    """Of torch, also on GPUs, of Python and of NumPy, where they are in use."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = (name, tuple(keys.tolist()), *rest)
    return states


def _are_equal(states: dict[str, Any], others: dict[str, Any]) -> bool:
    return (
        states.keys() == others.keys()
        and torch.equal(states["torch"], others["torch"])
        and all(torch.equal(*both) for both in zip(states.get("cuda", ()), others.get("cuda", ()), strict=True))
        and all(states[key] == others[key] for key in states if key not in ("torch", "cuda"))
    )


def set_random_states(states: dict[str, Any]) -> None:
    """Sets them as they were kept."""
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        # There may be fewer now.
        for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
            torch.cuda.set_rng_state(state, device)
    random.setstate(states["python"])
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])
