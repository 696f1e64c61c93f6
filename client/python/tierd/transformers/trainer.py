"""The trainers of transformers, with the state in tierd."""

from __future__ import annotations

import errno
import functools
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers
from torch import nn
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import TrainOutput, get_last_checkpoint
from transformers.utils.peft_utils import ADAPTER_SAFE_WEIGHTS_NAME

import tierd.torch
from tierd._core import Error
from tierd.torch.job import TorchJob
from tierd.torch.safetensors import files_of, tensors_of
from tierd.transformers.progress import MARKER, STATE, Progress, WentBack

# Arguments of transformers that have no meaning here, and what to do instead.
_REFUSED = {
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
    A job that has ended with `load_best_model_at_end=True` has the values of its best checkpoint, and is not trained on.

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
        # Checkpoints leave out what the job keeps.
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
            tierd.Error: the job does not stand where it should, or more is wanted of one that has ended with its best values;
                what a step has failed with.
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
            # Several ranks wait for each other in operations of gloo, and would do so for ever.
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
        if not marker.exists():
            raise Error(
                errno.ENOENT,
                f"{folder} has no {MARKER}, as checkpoints of a job have: begin anew with the model of from_pretrained()",
            )
        kept = json.loads(marker.read_text())
        # To write the best values takes the number of a step.
        trained = step - 1 if self._progress.has_ended else step
        if step > 0 and (checkpoint is True or (kept["job"] == self.job_name and kept["step"] == trained)):
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
        # Nobody has kept the norm of a step that was taken before the trainer came back.
        if math.isnan(logs.get("grad_norm", 0.0)):
            del logs["grad_norm"]
        super().log(logs, *arguments, **more)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """The job has the values."""

    # ---- The best values

    def _inner_training_loop(self, **options: Any) -> TrainOutput:  # type: ignore[override]
        """As of transformers; of a job that has ended with its best values, its end alone."""
        if not self._progress.has_ended:
            return super()._inner_training_loop(**options)
        self.state = TrainerState.load_from_json(str(Path(options["resume_from_checkpoint"], STATE)))
        self._initial_global_step = self.state.global_step
        self._tr_loss, self._total_loss_scalar = torch.tensor(0.0), 0.0
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        output: TrainOutput = self._finalize_training(None, 0, time.time())  # type: ignore[no-untyped-call]
        return output

    def _load_best_model(self) -> None:
        """As of transformers, but once for a job: it has the values and knows that it has ended, or neither."""
        if self._progress.has_ended:
            return
        with self._progress.ending():
            self.job.membership.attempt(self._write_best)
        if self.job.membership.is_void:
            raise WentBack

    def _write_best(self) -> None:
        assert self.state.best_model_checkpoint is not None and self.model is not None
        folder = Path(self.state.best_model_checkpoint)
        if (folder / ADAPTER_SAFE_WEIGHTS_NAME).exists():
            super()._load_best_model()
        else:
            self._issue_warnings_after_load(self.model.load_state_dict(_values(folder, self.model), strict=False))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """As of transformers, but a unit at a time, where the model's values are a job's and whole."""
        is_whole = isinstance(self.model, transformers.PreTrainedModel)
        if self._job is not None and self.args.should_save and state_dict is None and is_whole:
            tierd.torch.save(str(output_dir or self.args.output_dir), self.model)
            with _saved_already(self.model):
                super()._save(output_dir)
        else:
            if self._job is not None and self.args.should_save and state_dict is None:
                state_dict = _adapters_of(self.model)
            super()._save(output_dir, state_dict)

    def hyperparameter_search(self, *arguments: Any, **more: Any) -> NoReturn:
        raise Error(errno.ENOTSUP, "a search trains many models, and a job is one: make a Trainer for each trial")


def _adapters_of(model: Any) -> dict[str, torch.Tensor] | None:
    """Copies of what save_pretrained() of a model of peft writes, and which would copy the base to leave it out. None: the
    model is not of peft, or that makes tensors of its own."""
    peft = sys.modules.get("peft")
    if peft is None or not isinstance(model, peft.PeftModel):
        return None
    state = model.state_dict(keep_vars=True)
    written: set[int] = set()
    for adapter in model.peft_config:
        written |= {id(value) for value in peft.get_peft_model_state_dict(model, state, adapter).values()}
    if not written <= {id(value) for value in state.values()}:
        return None
    return {name: value.detach().clone() for name, value in state.items() if id(value) in written}


@contextmanager
def _saved_already(model: Any) -> Iterator[None]:
    """What is left to be saved is what goes with the model."""
    model.save_pretrained = lambda *arguments, **more: None
    try:
        yield
    finally:
        del model.save_pretrained


def _values(folder: Path, model: Any) -> dict[str, torch.Tensor]:
    """Of a checkpoint, by the model's names. They are the files' memory, in none of the process' own."""
    values = {name: stored.values() for file in files_of(folder) for name, stored in tensors_of(file)}
    if values.keys() <= model.state_dict(keep_vars=True).keys():
        return values
    # The library renames or joins what its files have.
    with tierd.torch.init():
        made = type(model).from_pretrained(str(folder))
    return {name: value for name, value in made.state_dict().items() if not value.is_meta}


class Seq2SeqTrainer(Trainer, transformers.Seq2SeqTrainer):
    """A `transformers.Seq2SeqTrainer`, which evaluates by `generate()`, whose model is trained in tierd: see `Trainer`."""
