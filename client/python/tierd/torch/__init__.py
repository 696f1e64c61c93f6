"""tierd for PyTorch: trains models whose parameters, gradients and optimizer state are larger than memory."""

from tierd.torch.initialize import close, initialize, job_of, resumable

__all__ = ["close", "initialize", "job_of", "resumable", "state"]


def __getattr__(name: str) -> object:
    if name == "state":
        return job_of().kept.state
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
