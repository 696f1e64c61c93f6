"""Every private name of torch that the package uses: what for, and since which version it is there."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

# Where a module has which of torch's composable functions were applied to it. Since 2.0; "" in a torch that distributes
# nothing. Before they change a module they ask whether they are there already, or one that they do not go with.
try:
    from torch.distributed._composable.contract import REGISTRY_KEY
except ImportError:
    REGISTRY_KEY = ""
REGISTRY: str = REGISTRY_KEY
# Those of them that distribute it.
DISTRIBUTING = ("fully_shard", "replicate")

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4):
    raise ImportError(
        f"tierd.torch needs PyTorch 2.4 or later, and {torch.__file__} is {torch.__version__}: pip install --upgrade torch"
    )

Pack = Callable[[torch.Tensor], Any]
Unpack = Callable[[Any], torch.Tensor]

# The public context manager does the same, but makes an object for each entry, on a path of microseconds. Since 1.10.
_push_hooks: Callable[[Pack, Unpack], None] = torch._C._autograd._push_saved_tensors_default_hooks
pop_saved_tensor_hooks: Callable[[], None] = torch._C._autograd._pop_saved_tensors_default_hooks
# A DLPack capsule of a tensor, for our own extension. Since 0.4, and public until 2.10.
to_dlpack: Callable[[torch.Tensor], Any] = torch._C._to_dlpack

# Which pair is on top, which is the only one that torch calls. Since 2.5; before that nobody can know.
_top_hooks: Callable[[bool], tuple[Pack, Unpack] | None] | None = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", None
)

# Within torch.jit.trace. Since 0.4; public as torch.jit.is_tracing(), without types.
is_tracing: Callable[[], bool] = torch._C._is_tracing

# Inside of a backward pass its number, else -1. Since 1.13.
graph_task: Callable[[], int] = torch._C._current_graph_task_id

# Whether a profiler records what this thread does. Since 1.10.
is_profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled

# Metadata of a tensor whose class has __torch_function__, without calling that. Since 2.0.
without_torch_function = torch._C.DisableTorchFunctionSubclass

# Whether a tensor's class has its values in other tensors, as those of torchao and DTensor do. Since 2.1.
is_wrapper: Callable[[object], bool] = torch.utils._python_dispatch.is_traceable_wrapper_subclass


def is_looking_for_shards() -> bool:
    """Whether our caller was called because torch looks for modules of FullyShardedDataParallel in a model, as for its state
    dicts, and makes none. Since 2.0."""
    return sys._getframe(3).f_code.co_name == "_get_fsdp_states_with_modules"


# torch.jit.script() calls this method of a module, if there is one, for a module in its place. Since 1.10.
PREPARE_SCRIPTABLE = "__prepare_scriptable__"


def push_saved_tensor_hooks(pack: Pack, unpack: Unpack) -> None:
    """Makes this thread save tensors for backward through the pair, until `pop_saved_tensor_hooks()`."""
    _push_hooks(pack, unpack)


def top_saved_tensor_hooks() -> tuple[Pack, Unpack] | None:
    """The pair that this thread saves tensors through; None: there is none, or this torch does not tell."""
    return _top_hooks(False) if _top_hooks is not None else None


Function = TypeVar("Function", bound=Callable[..., Any])


def not_compiled(function: Function) -> Function:
    """A hook that torch.compile calls, and does not look into. Since 2.7 it says why, where a graph may not break."""
    options: dict[str, Any] = {"reason": "tierd gathers parameters here: compile blocks, or without fullgraph=True"}
    if "reason" not in inspect.signature(torch.compiler.disable).parameters:
        options = {}
    hook: Function = torch.compiler.disable(function, **options)
    return hook


# Torch's own, which finds no gradients in a model on tierd, and would do nothing.
clip_grad_norm_ = torch.nn.utils.clip_grad_norm_


def replace_clipping(function: Callable[..., torch.Tensor]) -> None:
    """Has callers of torch.nn.utils.clip_grad_norm_, as trainers of other libraries are, call this function.

    There is no other way: it has no hook. Who has imported the name itself before gets an error, by PushedGradient.
    """
    torch.nn.utils.clip_grad_norm_ = function


def restore_clipping() -> None:
    """Undoes `replace_clipping()`."""
    torch.nn.utils.clip_grad_norm_ = clip_grad_norm_


def is_of_checkpoint(pack: Pack) -> bool:
    """Whether a hook is one of checkpoints without reentrance. Their classes have these names since 2.0."""
    name = getattr(pack, "__qualname__", "")
    return "_checkpoint_hook" in name or "_recomputation_hook" in name


# How GradScaler looks for overflows, and unscales. Since 1.8.
unscale = torch._amp_foreach_non_finite_check_and_unscale_


def plain_step(kind: type[torch.optim.Optimizer]) -> Callable[[torch.optim.Optimizer], Any]:
    """The step of a class of optimizers without what torch wraps around it for users' hooks. Since 1.12."""
    step: Any = kind.step
    plain: Callable[[torch.optim.Optimizer], Any] = step.__wrapped__ if getattr(step, "hooked", False) else step
    return plain


# Has torch call back when the backward pass under way has ended; not if it fails. The callback goes with the pass's graph task.
# Since 1.0; DDP and FSDP use it.
at_end_of_backward: Callable[[Callable[[], None]], None] = torch.autograd.Variable._execution_engine.queue_callback


def is_making_parameter() -> bool:
    """Whether nn.Parameter() has called the function of torch that has called our caller. It wants detach() to give a tensor of
    the same class. Since 1.12."""
    code = torch.nn.Parameter.__new__.__code__
    return sys._getframe(2).f_code is code


# How many tensors share a storage, and objects of Python's that lead to it. Since 2.1.
_use_count: Callable[[int], int] = torch._C._storage_Use_Count


def is_storage_shared(tensor: torch.Tensor) -> bool:
    """Whether another tensor has the same memory."""
    return _uses(tensor) > _uses(torch.empty(0))


def _uses(tensor: torch.Tensor) -> int:
    storage = tensor.untyped_storage()
    return _use_count(storage._cdata)
