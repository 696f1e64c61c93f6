"""tierd for transformers: its trainers, for models whose parameters, gradients and optimizer state are larger than memory."""

from tierd.transformers.trainer import Seq2SeqTrainer, Trainer

__all__ = ["Seq2SeqTrainer", "Trainer"]
