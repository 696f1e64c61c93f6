"""tierd for Lightning: a strategy, for modules whose parameters, gradients and optimizer state are larger than memory."""

from tierd.lightning.strategy import Strategy

__all__ = ["Strategy"]
