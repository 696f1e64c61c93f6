"""A strategy of Lightning: the module's state is in tierd, and each step brings with it where the Trainer is.

What is kept with step n is how the Trainer stood when step n *began*: what it does after a step (schedulers, callbacks,
validation) may not have been done when it is killed. So a Trainer that comes back *repeats* step n, for nothing: its
gradients do not count. All that follows it is then done, or done again, by Lightning itself.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import nn

import tierd.torch
from tierd._core import Error
from tierd.daemon import find_or_start
from tierd.lightning.loader import Loader
from tierd.torch.groups import options_of
from tierd.torch.job import TorchJob, open_jobs

# The key of tierd.state, and of checkpoint files, which have the job and its step under it.
KEY = "tierd.lightning"


class Called(nn.Module):
    """A module whose steps Lightning calls as it calls a forward, so that hooks of the module see them."""

    def __init__(self, module: pl.LightningModule):
        super().__init__()
        self.module = module

    def forward(self, *arguments: Any, **more: Any) -> Any:
        return self.module(*arguments, **more)


class Strategy(DDPStrategy):
    """Trains a LightningModule in tierd: `Trainer(accelerator="cpu", devices=1, strategy=Strategy("gpt"))`.

    Processes, samplers and what is summed over ranks for metrics are as in Lightning's `ddp`; gradients are summed by the
    daemon. Each step is kept: `fit()` of a script that is started again goes on at the job's step, whatever ended the last
    one. Checkpoints have the module's values, and no state of the optimizer.

    Args:
        job: name of the job. One of this name that exists is gone on with.
        options: other arguments of `tierd.torch.initialize()`: stage, nvme, units, snapshots, host_budget …
    """

    strategy_name = "tierd"

    def __init__(self, job: str, **options: Any):
        super().__init__()
        self.job_name = job
        self._options = options
        self._job: TorchJob | None = None
        self._kept: dict[str, Any] | None = None  # with the job's step, until the Trainer has come back to it
        self._begun: dict[str, Any] | None = None  # how the Trainer stood when the step under way began
        self._is_repeating = False
        self._has_moments = False  # in the checkpoint file from which a new job begins

    @property
    def job(self) -> TorchJob:
        """What has the module's state, after `fit()` has begun."""
        if self._job is None:
            raise Error(errno.EINVAL, f"job {self.job_name} is opened by Trainer.fit()")
        return self._job

    @property
    def _trainer(self) -> Any:  # a pl.Trainer, not all of whose attributes have types
        assert self.lightning_module is not None
        return self.lightning_module.trainer

    # ---- Coming to the job, and back to it

    def _configure_launcher(self) -> None:
        super()._configure_launcher()
        assert self.cluster_environment is not None
        if self.num_processes > 1 and not self.cluster_environment.creates_processes_externally:
            # Lightning is to start the others, which find rank 0's daemon by this.
            os.environ["TIERD_SOCKET"] = self._options.get("socket") or find_or_start(self._options.get("nvme"))

    def setup(self, trainer: pl.Trainer) -> None:
        assert self.accelerator is not None and self.lightning_module is not None
        self.accelerator.setup(trainer)
        self.model = self.precision_plugin.convert_module(self.lightning_module)
        self.model_to_device()
        is_fitting = trainer.state.fn == TrainerFn.FITTING
        if is_fitting:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()
        if is_fitting:
            self._put_on_tierd(self.lightning_module)
            self._come_back(trainer)
        self.model = Called(self.lightning_module)

    def _put_on_tierd(self, module: pl.LightningModule) -> None:
        if not module.automatic_optimization:
            raise Error(
                errno.ENOTSUP,
                "the module steps its optimizers itself (automatic_optimization=False), so nobody knows which step a batch is "
                "of: train it by tierd.torch.initialize() in a loop of your own",
            )
        for other in list(open_jobs):
            if other.name == self.job_name and other.model is not module:
                # An earlier fit() of this process has opened it, and has the rank.
                other.close()
        options = {"rank": self.global_rank, "world_size": self.world_size, **self._options}
        tierd.torch.initialize(module, self.optimizers, job=self.job_name, **options)
        self._job = tierd.torch.job_of(module)

    def _come_back(self, trainer: Any) -> None:
        self._kept, self._begun, self._is_repeating = self.job.kept.state.get(KEY), None, False
        step = self.job.core.state()["step"]
        if self._kept is None and step > 0:
            raise Error(
                errno.EINVAL,
                f"job {self.job_name} stands at step {step}, and this rank has not been there with Lightning: start as "
                "many ranks as before, or another job",
            )
        if self._kept is None:
            return
        self._load_loops(trainer, self._kept)
        for group, options in zip(self.job.param_groups, self._kept["groups"], strict=True):
            group.update(options)
        for config, state in zip(self.lr_scheduler_configs, self._kept["schedulers"], strict=True):
            config.scheduler.load_state_dict(state)
        for callback in trainer.callbacks:
            if callback.state_key in self._kept["callbacks"]:
                callback.load_state_dict(copy.deepcopy(self._kept["callbacks"][callback.state_key]))

    @staticmethod
    def _load_loops(trainer: Any, kept: dict[str, Any]) -> None:
        """Sets all counters. Lightning is not told that it restarts: it would guess from them what was done of a batch."""
        trainer.fit_loop.load_state_dict(copy.deepcopy(kept["loops"]))
        _Loop.restarting.fset(trainer.fit_loop, False)  # type: ignore[attr-defined]

    def process_dataloader(self, dataloader: Any) -> Any:
        """Batches for training come from where the job stands."""
        if not self._trainer.training:
            return dataloader
        return Loader(dataloader, None if self._kept is None else self._kept["place"])

    # ---- With each step

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self._kept is not None:
            # This was called for the same batch when the step began, and from here on all is as it was then.
            self._load_loops(self._trainer, self._kept)
            self._trainer.fit_loop._data_fetcher.fetched += self._kept["place"]["done"]
            self._trainer.callback_metrics.update(self._kept["metrics"])
            self._kept, self._begun = None, self._kept
            self._is_repeating = True
            self.job.repeat()
        elif self._begun is None:
            self._begun = self._standing()

    def _standing(self) -> dict[str, Any]:
        trainer = self._trainer
        loader = trainer.train_dataloader
        if not isinstance(loader, Loader):
            raise Error(errno.ENOTSUP, "several loaders of training batches do not go with tierd: give one")
        return {
            "loops": copy.deepcopy(trainer.fit_loop.state_dict()),
            "place": {"start": loader.start, "done": trainer.fit_loop.epoch_loop.batch_progress.current.completed},
            "groups": [options_of(group) for group in self.job.param_groups],
            "schedulers": [config.scheduler.state_dict() for config in self.lr_scheduler_configs],
            # of earlier validations, which schedulers may look at
            "metrics": {key: value.detach().clone() for key, value in trainer.callback_metrics.items()},
            "callbacks": {each.state_key: state for each in trainer.callbacks if (state := each.state_dict())},
        }

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any], model: Any = None, **more: Any
    ) -> Any:
        if not self._is_repeating:
            self.job.kept.state[KEY] = self._begun
        result = super().optimizer_step(optimizer, closure, model, **more)
        self._begun = None
        if self._is_repeating:
            self._is_repeating = False
            self.job.go_on()
        return result

    def on_train_end(self) -> None:
        self.job.finish()

    def teardown(self) -> None:
        # Lightning moves their state to the processor, where it is.
        own = self.__dict__
        optimizers, own["_optimizers"] = own["_optimizers"], []
        super().teardown()
        own["_optimizers"] = optimizers

    # ---- Files

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Of rank 0, which writes it."""
        state: dict[str, Any] = super().lightning_module_state_dict() if self.is_global_zero else {}
        return state

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """None: it is the job's."""
        return {}

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if self._job is not None:
            checkpoint[KEY] = {"job": self.job_name, "step": self._job.core.state()["step"]}
        super().save_checkpoint(checkpoint, filepath, storage_options)

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        """The job says whether there is anything to load."""
        return True

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Of a job that stands at a step, what is kept with that counts instead of a file of that job."""
        checkpoint: dict[str, Any] = super().load_checkpoint(checkpoint_path, weights_only)
        self._has_moments = any(checkpoint.get("optimizer_states", ()))
        if self._kept is None:
            return checkpoint
        if checkpoint.get(KEY, {}).get("job") != self.job_name:
            raise Error(
                errno.EINVAL,
                f"job {self.job_name} has been trained, and {checkpoint_path} is not of it: leave ckpt_path out to go on, or "
                "take another job to begin with the file",
            )
        del checkpoint["loops"]
        return checkpoint | {"callbacks": self._kept["callbacks"], "lr_schedulers": self._kept["schedulers"]}

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        if self._kept is not None:
            return
        if self._trainer.state.fn != TrainerFn.FITTING and self._job is not None:
            raise Error(
                errno.ENOTSUP,
                f"the file's values would become those of job {self.job_name}: give the trainer another module, such as that of "
                "load_from_checkpoint(), or leave ckpt_path out to have the job's",
            )
        super().load_model_state_dict(checkpoint, strict)

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Of another checkpoint's moments a new job takes over."""
        return self._kept is None and self._has_moments
