"""Where a trainer of transformers is, kept with each step, and brought back.

What is kept with step n is how the Trainer stood when step n *began*, and the losses of its micro-batches. Whatever the
Trainer does after a step (it logs, evaluates, saves, moves the learning rate) may not have been done when it is killed.
So a trainer that comes back *repeats* step n: with the losses that are kept instead of a forward and a backward, and with
no step of the optimizer. All that follows it is then done, or done again, by the Trainer itself, to the same numbers.

A training that ends with the values of its best checkpoint writes them into the job, and with them, at once, that it has
ended: no step's values are there any more, so none is done again, and no other is taken.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from tierd._core import Error
from tierd.torch.groups import options_of
from tierd.torch.kept import pack, random_states, set_random_states, unpack

if TYPE_CHECKING:
    from tierd.transformers.trainer import Trainer

# The key of tierd.state under which it is.
KEY = "tierd.transformers"
# A file in each checkpoint: the job and its step.
MARKER = "tierd.json"
# In the output folder: what was logged, a line for each. It grows, so it is not kept with each step.
LOG = "tierd_log.jsonl"
STATE = "trainer_state.json"

# Sums of the Trainer's, since it logged last.
_SUMS = ("_globalstep_last_logged", "current_flos")


class WentBack(Exception):
    """The job went back while the Trainer took a step; the Trainer has to begin again from there."""


class Progress(TrainerCallback):
    """A callback, called after all others."""

    def __init__(self, trainer: Trainer):
        self.losses: list[float] = []  # of the step's micro-batches so far
        self.is_repeating = False
        self._trainer: Any = trainer  # whose attributes are None before train()
        self._begun: dict[str, Any] = {}  # how the Trainer stood when the step began
        self._epoch_start = b""  # random states
        self._step = 0  # at which the job stood when the Trainer came
        self._kept: dict[str, Any] | None = None  # with the job's step, until the Trainer has come back to it

    # ---- Coming back

    def written_to(self, folder: str) -> str | None:
        """A checkpoint from which the Trainer goes on at the job's step; None: the job is new."""
        job = self._trainer.job
        # This process may have trained before, and left something in the middle.
        self.is_repeating = False
        job.finish()
        job.drop()
        job.go_on()
        self._step = job.core.state()["step"]
        if self._step > 0:
            job.kept.restore(job.core)
        kept = job.kept.state.get(KEY)
        if kept is None and self._step > 0:
            raise Error(
                errno.EINVAL,
                f"job {self._trainer.job_name} stands at step {self._step}, and this rank has not been there with a Trainer: "
                "start as many ranks as before, or another job",
            )
        self._kept = None
        if kept is None:
            return None
        if self.has_ended:
            self._check_end(kept)
        else:
            self._kept = kept
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        logged = [json.loads(line) for line in lines[: kept["logged"]]]
        Path(folder, STATE).write_text(json.dumps({**json.loads(kept["state"]), "log_history": logged}))
        return folder

    def _check_end(self, kept: dict[str, Any]) -> None:
        if kept["ended"] != self._asked():
            raise Error(
                errno.EINVAL,
                f"job {self._trainer.job_name} has ended with the values of its best checkpoint, "
                f"{json.loads(kept['state'])['best_model_checkpoint']}, and those of its last step are gone: leave max_steps and "
                "num_train_epochs as they were, or begin another job with the model of from_pretrained()",
            )

    def _asked(self) -> list[float]:
        return [self._trainer.args.max_steps, self._trainer.args.num_train_epochs]

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        trainer, kept = self._trainer, self._kept
        if state.is_world_process_zero:
            self._write_log(state.log_history)
        if kept is None:
            return
        for group, options in zip(trainer.optimizer.param_groups, kept["groups"], strict=True):
            group.update(options)
        trainer.job.freeze(kept["frozen"])
        trainer.lr_scheduler.load_state_dict(kept["scheduler"])
        for name, value in kept["sums"].items():
            setattr(trainer, name, value)
        trainer._tr_loss += kept["loss"]
        # The Trainer adds all of that sum to what it divides by the steps since it began.
        trainer._total_loss_scalar -= kept["loss"]
        for callback, (name, attributes) in zip(self._exportable(), kept["callbacks"], strict=False):
            if type(callback).__name__ == name:
                vars(callback).update(attributes)

    # ---- With each step

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self._kept is not None:
            set_random_states(unpack(self._kept["epoch"], KEY))
        self._epoch_start = pack(random_states())

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        trainer = self._trainer
        self.losses = []
        self._begun = {
            "state": _without_log(state),
            "logged": len(state.log_history),
            "groups": [options_of(group) for group in trainer.optimizer.param_groups],
            "frozen": trainer.job.frozen(),
            "scheduler": trainer.lr_scheduler.state_dict(),
            "callbacks": [(type(item).__name__, item.state()["attributes"]) for item in self._exportable()],
            "sums": {name: getattr(trainer, name) for name in _SUMS},
            "loss": trainer._tr_loss.item(),
            "epoch": self._epoch_start,
        }
        if self._kept is not None:
            self.losses, self._kept = list(self._kept["losses"]), None
            self.is_repeating = True
            trainer.job.repeat()

    def repeated_loss(self) -> torch.Tensor:
        return torch.tensor(self.losses.pop(0) if self.losses else 0.0)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if not self.is_repeating:
            self._trainer.job.kept.state[KEY] = {**self._begun, "losses": self.losses}

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.is_repeating:
            self.is_repeating = False
            self._trainer.job.go_on()
            if self._trainer.job.core.state()["step"] != self._step:
                raise WentBack
        elif self._trainer.job.membership.is_void:
            raise WentBack

    # ---- The end

    @property
    def has_ended(self) -> bool:
        """Whether the job has the values of its best checkpoint."""
        return "ended" in self._trainer.job.kept.state.get(KEY, {})

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Keeps with the values that are written meanwhile that the job has ended."""
        state, kept = self._trainer.state, self._trainer.job.kept.state
        before = kept[KEY]
        # The Trainer logs its end again.
        kept[KEY] = {"state": _without_log(state), "logged": len(state.log_history) - 1, "ended": self._asked()}
        try:
            yield
        except BaseException:
            kept[KEY] = before
            raise

    # ---- Folders

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.is_world_process_zero:
            marker = {"job": self._trainer.job_name, "step": self._trainer.job.core.state()["step"]}
            Path(args.output_dir, f"checkpoint-{state.global_step}", MARKER).write_text(json.dumps(marker) + "\n")

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.is_world_process_zero and state.log_history:
            with self._log.open("a") as file:
                file.write(json.dumps(state.log_history[-1]) + "\n")

    @property
    def _log(self) -> Path:
        return Path(self._trainer.args.output_dir, LOG)

    def _write_log(self, history: list[dict[str, float]]) -> None:
        """Another rank may be reading it."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        new = self._log.with_suffix(".new")
        new.write_text("".join(json.dumps(entry) + "\n" for entry in history))
        os.replace(new, self._log)

    def _exportable(self) -> list[ExportableState]:
        return [item for item in self._trainer.callback_handler.callbacks if isinstance(item, ExportableState)]


def _without_log(state: Any) -> str:
    return json.dumps(dataclasses.asdict(dataclasses.replace(state, log_history=[])))
