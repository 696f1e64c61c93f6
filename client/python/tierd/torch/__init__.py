"""tierd for PyTorch: trains models whose parameters, gradients and optimizer state do not fit in the trainer's memory."""

from tierd.torch.initialize import initialize

__all__ = ["initialize"]
