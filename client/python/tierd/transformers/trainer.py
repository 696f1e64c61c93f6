"""The trainers of transformers, with the state in tierd."""

from __future__ import annotations

import errno
import functools
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers
from torch import nn
from transformers.trainer_utils import TrainOutput, get_last_checkpoint

import tierd.torch
from tierd._core import Error
from tierd.torch.job import TorchJob
from tierd.transformers.progress import MARKER, Progress, WentBack

# Arguments of transformers that have no meaning here, and what to do instead.
_REFUSED = {
    "load_best_model_at_end": "a job goes on from the values of its last step, and the best ones would be in their place: "
    "leave it out, say metric_for_best_model=, and load trainer.state.best_model_checkpoint by from_pretrained()",
    "auto_find_batch_size": "steps that were taken stay taken: choose per_device_train_batch_size",
    "bf16_full_eval": "the job has one format of each parameter: leave it out",
    "fp16_full_eval": "the job has one format of each parameter: leave it out",
    "fp16": "on the processor transformers would leave it out, and train in fp32: say bf16=True",
    "deepspeed": "tierd partitions the state: leave it out",
    "fsdp": "tierd partitions the state: leave it out",
}


class Trainer(transformers.Trainer):
    """A `transformers.Trainer` whose model is trained in tierd. All arguments of that class are taken, and mean the same.

    Each step is kept: `train()` goes on at the job's step, whatever ended the last one, and ends with the bits of a
    training that nothing has interrupted. Checkpoint folders have the model's files, and no state of the optimizer.

    Args:
        job: name of the job. One of this name that exists is gone on with.
        job_options: other arguments of `tierd.torch.initialize()`: stage, nvme, units, snapshots, host_budget …
        arguments, more: those of `transformers.Trainer`.

    Raises:
        tierd.Error: an argument that does not go with tierd, with its name.
    """

    def __init__(self, *arguments: Any, job: str, job_options: Mapping[str, Any] | None = None, **more: Any):
        super().__init__(*arguments, **more)
        self._check()
        self.job_name = job
        self._job: TorchJob | None = None
        self._job_options = dict(job_options or {})
        # What is left out of checkpoints by it is the job's.
        self.args.save_only_model = True
        self._progress = Progress(self)
        self.add_callback(self._progress)

    @property
    def job(self) -> TorchJob:
        """What has the model's state, after the first `train()`."""
        if self._job is None:
            raise Error(errno.EINVAL, f"job {self.job_name} is opened by train()")
        return self._job

    def _check(self) -> None:
        for argument, remedy in _REFUSED.items():
            if getattr(self.args, argument, None):
                raise Error(errno.ENOTSUP, f"{argument} does not go with tierd: {remedy}")
        if self.args.device.type != "cpu":
            raise Error(
                errno.ENOTSUP,
                f"the device is {self.args.device}, and tierd trains in the host's memory: say use_cpu=True",
            )

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        # The daemon sums over the ranks: what DistributedDataParallel would do. All else that is done to a model is done.
        self.accelerator.prepare_model = functools.partial(self._prepare_model, self.accelerator.prepare_model)
        self.accelerator.prepare_optimizer = functools.partial(
            self._prepare_optimizer, self.accelerator.prepare_optimizer
        )

    @staticmethod
    def _prepare_model(prepare: Any, model: nn.Module, **options: Any) -> nn.Module:
        prepared: nn.Module = prepare(model, device_placement=False, evaluation_mode=True)
        return prepared

    @staticmethod
    def _prepare_optimizer(prepare: Any, optimizer: torch.optim.Optimizer, device_placement: bool | None = None) -> Any:
        # To move it, accelerate loads its state dict: all moments would be read, and written again as a change of the job.
        return prepare(optimizer, device_placement=False)

    # ---- Training

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Trains as far as the arguments say, from the step at which the job stands.

        Args:
            resume_from_checkpoint: True: as without it, but a job that is not there is an error where there are
                checkpoints. A folder: the job has to stand at its step.
            ignore_keys_for_eval: as in transformers.

        Raises:
            tierd.Error: the job does not stand where it should; what a step has failed with.
        """
        if trial is not None:
            self.hyperparameter_search()
        job = self._put_on_tierd()
        self._check_checkpoint(resume_from_checkpoint, job)
        while True:
            with tempfile.TemporaryDirectory() as folder, self._in_loop(job):
                try:
                    result = super().train(self._progress.written_to(folder), None, ignore_keys_for_eval)
                    job.finish()
                except WentBack:
                    continue
            if not job.membership.is_void:
                return result

    @contextmanager
    def _in_loop(self, job: TorchJob) -> Iterator[None]:
        job.membership.is_in_loop = True
        try:
            yield
        finally:
            job.membership.is_in_loop = False

    def _put_on_tierd(self) -> TorchJob:
        if self._job is None:
            if self.model_init is not None:
                transformers.set_seed(self.args.seed)
                self.model = self.model_wrapped = self.call_model_init()
                self.optimizer = self.lr_scheduler = None
                self.model_init = None  # type: ignore[assignment]
            options = {"rank": self.args.process_index, "world_size": self.args.world_size, **self._job_options}
            tierd.torch.initialize(self.model, self.create_optimizer(), job=self.job_name, **options)
            self._job = tierd.torch.job_of(self.model)
            # Of several ranks each waits for the others in operations of gloo, and would do so for ever.
            self._job.membership.can_go_back = self.args.world_size == 1
        return self._job

    def _check_checkpoint(self, checkpoint: str | bool | None, job: TorchJob) -> None:
        """Raises where training would not go on where the caller wants it to."""
        step = job.core.state()["step"]
        folder = checkpoint
        if checkpoint is True and step == 0:
            folder = get_last_checkpoint(self.args.output_dir)  # type: ignore[no-untyped-call]
        if not isinstance(folder, str):
            return
        marker = Path(folder, MARKER)
        kept = json.loads(marker.read_text()) if marker.exists() else {"job": None, "step": None}
        if step > 0 and (checkpoint is True or (kept["job"] == self.job_name and kept["step"] == step)):
            return
        raise Error(
            errno.EINVAL,
            f"{folder} is of step {kept['step']} of job {kept['job']}, and job {self.job_name} stands at step {step}. "
            f"A checkpoint has no state of the optimizer: go back by `tierctl rollback {self.job_name} SNAPSHOT`, if there "
            "is a snapshot of that step, or begin anew with the model of from_pretrained()",
        )

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        if self._progress.is_repeating:
            return self._progress.repeated_loss()
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        self._progress.losses.append(loss.item())
        return loss

    def log(self, logs: dict[str, float], *arguments: Any, **more: Any) -> None:
        # Of a step that was taken before the trainer came back nobody has kept it.
        if math.isnan(logs.get("grad_norm", 0.0)):
            del logs["grad_norm"]
        super().log(logs, *arguments, **more)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """The job has the values."""

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """As of transformers, but a unit at a time, where the model's values are a job's and whole."""
        is_whole = isinstance(self.model, transformers.PreTrainedModel)
        if self._job is not None and self.args.should_save and state_dict is None and is_whole:
            tierd.torch.save(str(output_dir or self.args.output_dir), self.model)
            with _saved_already(self.model):
                super()._save(output_dir)
        else:
            super()._save(output_dir, state_dict)

    def hyperparameter_search(self, *arguments: Any, **more: Any) -> NoReturn:
        raise Error(errno.ENOTSUP, "a search trains many models, and a job is one: make a Trainer for each trial")


@contextmanager
def _saved_already(model: Any) -> Iterator[None]:
    """What is left to be saved is what goes with the model."""
    model.save_pretrained = lambda *arguments, **more: None
    try:
        yield
    finally:
        del model.save_pretrained


class Seq2SeqTrainer(Trainer, transformers.Seq2SeqTrainer):
    """A `transformers.Seq2SeqTrainer`, which evaluates by `generate()`, whose model is trained in tierd: see `Trainer`."""
