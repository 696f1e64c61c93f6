"""tierd for PyTorch: trains models whose parameters, gradients and optimizer state are larger than memory."""

from tierd._core import Error, StaleError
from tierd.torch.clipping import clip_grad_norm_
from tierd.torch.follower import Follower, follow
from tierd.torch.init import init
from tierd.torch.initialize import close, initialize, job_of, resumable, save, scale_loss
from tierd.torch.kept import State
from tierd.torch.plan import plan
from tierd.torch.pretrained import from_pretrained
from tierd.torch.summary import summary

__all__ = [
    "Error",
    "Follower",
    "StaleError",
    "clip_grad_norm_",
    "close",
    "follow",
    "from_pretrained",
    "init",
    "initialize",
    "job_of",
    "plan",
    "resumable",
    "save",
    "scale_loss",
    "state",
    "summary",
]

# Of the job that was initialized last.
state: State


def __getattr__(name: str) -> State:
    if name == "state":
        return job_of().kept.state
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
