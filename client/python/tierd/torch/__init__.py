"""tierd for PyTorch: trains models whose parameters, gradients and optimizer state are larger than memory."""

import sys
from types import ModuleType

from tierd._core import Error, StaleError
from tierd.torch.clipping import clip_grad_norm_
from tierd.torch.follower import Follower, follow
from tierd.torch.init import init
from tierd.torch.initialize import close, initialize, job_of, resumable, save, scale_loss
from tierd.torch.kept import State
from tierd.torch.plan import plan
from tierd.torch.pretrained import from_pretrained
from tierd.torch.snapshots import Snapshot, destroy_snapshot, rollback, snapshot, snapshots
from tierd.torch.summary import summary

__all__ = [
    "Error",
    "Follower",
    "Snapshot",
    "StaleError",
    "clip_grad_norm_",
    "close",
    "destroy_snapshot",
    "follow",
    "from_pretrained",
    "init",
    "initialize",
    "job_of",
    "plan",
    "resumable",
    "rollback",
    "save",
    "scale_loss",
    "snapshot",
    "snapshots",
    "summary",
]

# The state of the job that was initialized last. Not in __all__: an import would keep the one of that moment.
state: State


class _Module(ModuleType):
    @property
    def state(self) -> State:
        return job_of().kept.state

    @state.setter
    def state(self, value: object) -> None:
        raise AttributeError(
            "tierd.torch.state is there already, and is kept: change what is in it, as by state.update(…)"
        )


sys.modules[__name__].__class__ = _Module
