"""What a model may not have: what would write to parameters, or end in an error that names nothing."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import torch
from torch import nn

from tierd._core import Error
from tierd.torch import compat
from tierd.torch.storage import is_hidden


def check(model: nn.Module) -> None:
    """tierd.Error: something that tierd cannot train, with its name and a remedy."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise Error(
            errno.ENOTSUP,
            f"the model is wrapped by {type(model).__name__}, which sums gradients itself: give the model that it wraps",
        )
    for name, module in model.named_modules():
        where = name or "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise Error(errno.ENOTSUP, f"{where} is a ScriptModule, whose parameters are not Python's: give the module")
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            if module.max_norm is not None:
                raise Error(
                    errno.ENOTSUP,
                    f"{where} has max_norm={module.max_norm}, which writes to its weight in each forward: leave it out",
                )
            if module.sparse:
                raise Error(errno.ENOTSUP, f"{where} has sparse gradients, which tierd does not sum: say sparse=False")
    for name, parameter in model.named_parameters():
        if compat.is_wrapper(parameter):
            kind = type(parameter.data)
            raise Error(
                errno.ENOTSUP,
                f"{name} is a {kind.__module__}.{kind.__qualname__}, which has its values in other tensors: tierd has "
                "plain ones (for quantized bases those of bitsandbytes)",
            )
        if is_hidden(parameter):
            raise Error(
                errno.EINVAL,
                f"{name} is on tierd already, or was when its job was closed: make the model anew before initialize()",
            )
        if parameter.device.type not in ("cpu", "meta", "cuda"):
            raise Error(
                errno.ENOTSUP, f"{name} is on {parameter.device}: models are on the processor, or on GPUs as cuda"
            )
        if parameter.is_sparse or parameter.layout is not torch.strided:
            raise Error(errno.ENOTSUP, f"{name} is {parameter.layout}: tierd has dense parameters alone")
    check_memory(model)
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise Error(
                errno.EINVAL,
                f"buffer {name} is on meta, and the job has none for it: make the model in tierd.init(values=False), where "
                "buffers have values",
            )


def check_on_gpu(model: nn.Module) -> None:
    """tierd.Error: something that tierd cannot compute on a GPU."""
    for name, parameter in model.named_parameters():
        if any(getattr(parameter, attribute, None) is not None for attribute in ("quant_state", "CB", "SCB")):
            raise Error(
                errno.ENOTSUP,
                f"{name} is quantized by bitsandbytes, which has scales where tierd does not look: on a GPU leave the base as it "
                'is, in bfloat16, or compute it on the processor (device="cpu")',
            )


def check_memory(model: nn.Module) -> None:
    """tierd.Error: a parameter that may be trained shares memory with another tensor, which would not follow it."""
    parameters = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    placed = [
        (name, item) for name, item in tensors if item.numel() and item.layout is torch.strided and not item.is_meta
    ]
    before: list[tuple[str, torch.Tensor]] = []
    for name, tensor in sorted(placed, key=lambda each: each[1].data_ptr()):
        before = [(each, item) for each, item in before if _end(item) > tensor.data_ptr()]
        for other, item in before:
            if (id(tensor) in parameters or id(item) in parameters) and _overlap(item, tensor):
                raise Error(
                    errno.EINVAL,
                    f"{other} and {name} share memory, and tierd keeps each of them by itself: make them one Parameter "
                    f"(module.weight = other.weight), or take a copy (.clone())",
                )
        before.append((name, tensor))


def _end(tensor: torch.Tensor) -> int:
    """The address behind its last element."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _overlap(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether an element is in both, of which the right one begins within the left one; columns of one matrix lie between each other."""
    start, size = left.data_ptr(), left.element_size()
    if right.dtype != left.dtype or (right.data_ptr() - start) % size:
        return True
    is_left = torch.zeros((max(_end(left), _end(right)) - start) // size, dtype=torch.bool)
    is_left.as_strided(left.shape, left.stride()).fill_(True)
    return bool(is_left.as_strided(right.shape, right.stride(), (right.data_ptr() - start) // size).any())


def check_values(model: nn.Module) -> None:
    """tierd.Error: a parameter is on meta, and so has none to give to a new job."""
    parameters = dict(model.named_parameters())
    names = [name for name, parameter in parameters.items() if parameter.is_meta]
    if names:
        raise Error(
            errno.EINVAL,
            f"{names[0]} is on meta ({len(names)} of {len(parameters)} parameters are), and a new job needs values: "
            "load some (tierd.from_pretrained(model, folder)), or make the model in tierd.init()",
        )


def check_state(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """tierd.Error: an optimizer of the daemon's has moments already, which a new job would begin without."""
    for optimizer in optimizers:
        if any(isinstance(value, torch.Tensor) for state in optimizer.state.values() for value in state.values()):
            raise Error(
                errno.EINVAL,
                f"{type(optimizer).__name__} has a state already, which a new job does not take: keep its "
                "state_dict(), call optimizer.state.clear(), and optimizer.load_state_dict() after initialize()",
            )
