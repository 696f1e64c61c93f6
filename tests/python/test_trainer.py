"""The trainers of transformers in tierd: the same numbers as without it, whatever ends the process."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers

import compare
import tierd
import tierd.torch
import transformer_models
from conftest import PATIENCE, Daemon
from forked import Child, start_ranks, start_script
from tierd.torch import state_dicts
from tierd.torch.job import open_jobs
from tierd.transformers import Seq2SeqTrainer, Trainer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pytorch" / "trainer.py"


def sentences(count: int) -> list[dict[str, torch.Tensor]]:
    words = torch.randint(2, transformer_models.WORDS, (count, 12), generator=torch.Generator().manual_seed(7))
    return [{"input_ids": row, "labels": row} for row in words]


def arguments(folder: Path, kind: Any = transformers.TrainingArguments, **options: Any) -> Any:
    quiet = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}
    sizes = {"per_device_train_batch_size": 2, "max_steps": 8, "learning_rate": 1e-2, "max_grad_norm": 0.0}
    return kind(output_dir=str(folder), **{**quiet, **sizes, **options})


def make(folder: Path, job: str | None, **options: Any) -> Any:
    """A trainer of a small GPT-2; without a job one of transformers."""
    torch.manual_seed(0)
    model = options.pop("make_model", transformer_models.gpt2)()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1
    parts = {
        key: options.pop(key) for key in ("callbacks", "eval_dataset", "optimizers", "job_options") if key in options
    }
    kind: Any
    more: dict[str, Any]
    kind, more = (transformers.Trainer, {}) if job is None else (Trainer, {"job": job})
    return kind(model, arguments(folder, **options), train_dataset=sentences(10), **parts, **more)


def both(folder: Path, job: str, **options: Any) -> tuple[Any, Any]:
    """With tierd and without, trained."""
    trainers = []
    for name in (job, None):
        trainers.append(make(folder / str(name), name, **options))
        trainers[-1].train()
    return trainers[0], trainers[1]


def logged(trainer: Any, *keys: str) -> list[list[float]]:
    """What the trainer has logged under these names."""
    return [[entry[key] for entry in trainer.state.log_history if key in entry] for key in keys]


# ---- The same numbers


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation_steps": 2, "num_train_epochs": 3, "max_steps": -1},
        {"bf16": True, "activation_checkpointing": True, "dataloader_num_workers": 1},
    ],
    ids=["accumulated", "bf16-checkpointed"],
)
def test_sgd_gives_every_bit_of_transformers(options: dict[str, Any], tmp_path: Path, job: str) -> None:
    ours, theirs = both(tmp_path, job, optim="sgd", **options)
    assert logged(ours, "loss", "learning_rate") == logged(theirs, "loss", "learning_rate")
    compare.assert_same_bits(ours.model, theirs.model)


def test_a_compiled_model_gives_every_bit_of_one_that_is_not(tmp_path: Path, job: str) -> None:
    options = {"optim": "sgd", "max_steps": 2}
    ours = make(tmp_path, job, torch_compile=True, torch_compile_backend="eager", **options)
    ours.train()
    theirs = make(tmp_path, None, **options)
    theirs.train()
    assert ours.model_wrapped is not ours.model
    compare.assert_same_bits(ours.model, theirs.model)


def test_adamw_gives_the_losses_norms_and_parameters_of_transformers(tmp_path: Path, job: str) -> None:
    options = {"lr_scheduler_type": "cosine", "warmup_steps": 3, "label_smoothing_factor": 0.1, "weight_decay": 0.1}
    ours, theirs = both(tmp_path, job, max_grad_norm=0.5, adam_epsilon=1e-6, **options)
    for key, tolerance in {"loss": 1e-5, "grad_norm": 1e-4, "learning_rate": 0.0}.items():
        compare.assert_losses_close(logged(ours, key)[0], logged(theirs, key)[0], tolerance)
    compare.assert_close(ours.model, theirs.model, 1e-6)
    assert max(logged(theirs, "grad_norm")[0]) > 0.5


def test_an_evaluation_by_generate_finds_what_that_of_transformers_does(tmp_path: Path, job: str) -> None:
    said = []

    def score(prediction: Any) -> dict[str, float]:
        said.append(prediction.predictions.tolist())
        return {"first": float((prediction.predictions[:, 1] == prediction.label_ids[:, 0]).mean())}

    kinds: list[tuple[Any, dict[str, Any]]] = [(Seq2SeqTrainer, {"job": job}), (transformers.Seq2SeqTrainer, {})]
    for kind, more in kinds:
        torch.manual_seed(0)
        options = {"optim": "sgd", "eval_strategy": "steps", "eval_steps": 4, "predict_with_generate": True}
        own = arguments(tmp_path, transformers.Seq2SeqTrainingArguments, generation_max_length=5, **options)
        trainer = kind(
            transformer_models.t5(),
            own,
            train_dataset=sentences(10),
            eval_dataset=sentences(4),
            compute_metrics=score,
            **more,
        )
        trainer.train()
        said.append(logged(trainer, "loss", "eval_loss", "eval_first"))
    assert said[:3] == said[3:]
    assert len(said[2][1]) == 2


# ---- Coming back


class Kill(transformers.TrainerCallback):
    """Ends this process when the trainer comes to a point, in a step or after it, as kill -9 does; of several, one rank's."""

    def __init__(self, point: str, step: int, rank: str = "0"):
        setattr(self, point, self._at)
        self.step, self.rank = step, rank

    def _at(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step >= self.step and os.environ.get("RANK", self.rank) == self.rank:
            os.kill(os.getpid(), signal.SIGKILL)


POINTS = ["on_step_begin", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end", "on_log"]
POINTS += ["on_evaluate", "on_save", "on_epoch_end"]

# All of these depend on how often each thing was done: random numbers of dropout, a schedule, patience, files.
LONG: dict[str, Any] = {
    "max_steps": 24,
    "gradient_accumulation_steps": 2,
    "max_grad_norm": 0.5,
    "lr_scheduler_type": "reduce_lr_on_plateau",
    "lr_scheduler_kwargs": {"patience": 0, "threshold": 0.5},
    "metric_for_best_model": "loss",
    "logging_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 3,
    "save_strategy": "steps",
    "save_steps": 4,
    "save_total_limit": 2,
}
# These belong to one start alone.
OF_A_START = {"train_loss", "train_runtime", "eval_runtime", "total_flos", "grad_norm"}
End = tuple[dict[str, torch.Tensor], list[dict[str, float]]]


def make_long(folder: Path, job: str | None, options: dict[str, Any], *callbacks: transformers.TrainerCallback) -> Any:
    patience = transformers.EarlyStoppingCallback(2, 0.01)
    return make(folder, job, eval_dataset=sentences(4), callbacks=[patience, *callbacks], **options)


def finished(trainer: Any) -> End:
    """What comes of a trainer, from where its job stands."""
    trainer.train()
    history = [
        {key: value for key, value in entry.items() if key not in OF_A_START and "_per_second" not in key}
        for entry in trainer.state.log_history
    ]
    values = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    if open_jobs:
        tierd.torch.close()
    return values, history


def assert_ends_as(expected: End, end: End) -> None:
    """The same bits and the same log."""
    compare.assert_same_bits(end[0], expected[0])
    assert end[1] == expected[1]


def run(folder: Path, *more: Any) -> None:
    """The same in a child, which is alone or one rank of several."""
    torch.save(finished(make_long(folder, *more)), folder / f"end{os.environ.get('RANK', '0')}")


def ends(children: list[Child], folder: Path) -> list[End]:
    """What came of them."""
    for child in children:
        child.result()
    return [torch.load(folder / f"end{rank}") for rank in range(len(children))]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, daemon: Daemon) -> End:
    return finished(make_long(tmp_path_factory.mktemp("undisturbed"), "undisturbed", LONG))


def test_a_trainer_that_is_killed_anywhere_ends_with_the_bits_and_the_log_of_an_undisturbed_one(
    undisturbed: End, tmp_path: Path, job: str
) -> None:
    for step, point in enumerate(random.Random(1).sample(POINTS, len(POINTS))):
        Child(run, tmp_path, job, LONG, Kill(point, step)).assert_killed()
    (end,) = ends([Child(run, tmp_path, job, LONG)], tmp_path)
    assert_ends_as(undisturbed, end)
    # Its patience was over.
    assert end[1][-1]["step"] < LONG["max_steps"]


def test_ranks_that_are_killed_give_every_bit_of_those_of_transformers(tmp_path: Path, job: str) -> None:
    options = LONG | {"optim": "sgd", "max_grad_norm": 0.0, "gradient_accumulation_steps": 1, "max_steps": 5}
    first, second = start_ranks(2, run, tmp_path, job, options, Kill("on_pre_optimizer_step", 2, "1"))
    second.assert_killed()
    first.communicate()
    assert first.returncode != 0
    ours = ends(start_ranks(2, run, tmp_path, job, options), tmp_path)
    theirs = ends(start_ranks(2, run, tmp_path / "theirs", None, options), tmp_path / "theirs")
    for our, their in zip(ours, theirs, strict=True):
        assert_ends_as(their, our)


class Restart(transformers.TrainerCallback):
    """Kills the daemon after a step, and starts it again."""

    def __init__(self, daemon: Daemon, step: int):
        self.daemon, self.step = daemon, step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.step = 0
            self.daemon.kill()
            self.daemon.start()


def test_a_training_outlives_its_daemon(undisturbed: End, tmp_path: Path, job: str, daemon: Daemon) -> None:
    assert_ends_as(undisturbed, finished(make_long(tmp_path, job, LONG, Restart(daemon, 5), Restart(daemon, 12))))


class RollBack(transformers.TrainerCallback):
    """Keeps a step, and goes back to it, once."""

    is_done = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 4 and not self.is_done:
            tierd.torch.snapshot("fourth")
        if state.global_step == 7 and not self.is_done:
            self.is_done = True
            tierd.torch.rollback("fourth")


def test_a_training_that_is_rolled_back_goes_the_same_way_again(undisturbed: End, tmp_path: Path, job: str) -> None:
    options = {**LONG, "job_options": {"snapshots": 1}}
    assert_ends_as(undisturbed, finished(make_long(tmp_path, job, options, RollBack())))


class Interrupt(transformers.TrainerCallback):
    """Is Ctrl-C between two micro-batches."""

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 7:
            raise KeyboardInterrupt


def test_an_interrupted_training_is_gone_on_with_in_the_same_process(
    undisturbed: End, tmp_path: Path, job: str
) -> None:
    trainer = make_long(tmp_path, job, LONG, Interrupt())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.pop_callback(Interrupt)
    assert_ends_as(undisturbed, finished(trainer))


# ---- The best values in the end


# A rate with which the last values are not the best ones, before patience is over.
BEST = LONG | {
    "learning_rate": 2.0,
    "lr_scheduler_type": "constant",
    "lr_scheduler_kwargs": None,
    "optim": "sgd",
    "max_grad_norm": 0.0,
    "load_best_model_at_end": True,
    "save_steps": 3,
    "save_total_limit": 1,
}


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def run_up_to(owner: Any, name: str, count: int, *more: Any) -> None:
    """In a child, which is killed before such a call of a function."""
    function, calls = getattr(owner, name), itertools.count(1)

    def call(*arguments: Any, **options: Any) -> Any:
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    setattr(owner, name, call)
    run(*more)


def test_a_trainer_that_is_killed_at_its_end_has_the_best_values_of_transformers(
    tmp_path: Path, job: str, daemon: Daemon
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    expected = finished(make_long(theirs, None, BEST))
    ours.mkdir()
    # Before they are loaded, after the first and a later one are written, when all are; the last two ends come after it.
    points = [(Trainer, "_load_best_model", 1), (state_dicts, "_write", 2), (state_dicts, "_write", 9)]
    points += [(Trainer, "_issue_warnings_after_load", 1), (Kill, "_at", 1), (Kill, "_at", 1)]
    for point in points:
        Child(run_up_to, *point, ours, job, BEST, Kill("on_train_end", 0)).assert_killed()
    (end,) = ends([Child(run, ours, job, BEST)], ours)
    assert_ends_as(expected, end)
    assert checkpoints(ours) == checkpoints(theirs) != [f"checkpoint-{end[1][-1]['step']}"]


def test_ranks_that_are_killed_at_the_end_have_the_best_values_of_transformers(tmp_path: Path, job: str) -> None:
    options = BEST | {"gradient_accumulation_steps": 1}
    # Rank 0 writes, and the other one waits for it.
    first, second = start_ranks(2, run_up_to, state_dicts, "_write", 5, tmp_path, job, options)
    first.assert_killed()
    second.communicate()
    assert second.returncode != 0
    ours = ends(start_ranks(2, run, tmp_path, job, options), tmp_path)
    theirs = ends(start_ranks(2, run, tmp_path / "theirs", None, options), tmp_path / "theirs")
    for our, their in zip(ours, theirs, strict=True):
        assert_ends_as(their, our)


def test_best_values_are_written_once_more_if_the_daemon_is_lost_meanwhile(
    tmp_path: Path, job: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_long(tmp_path, job, BEST)
    write, calls = state_dicts._write, itertools.count(1)

    def restart(*arguments: Any) -> None:
        if next(calls) == 3:
            daemon.kill()
            daemon.start()
        write(*arguments)

    monkeypatch.setattr(state_dicts, "_write", restart)
    values, history = finished(trainer)
    assert len(checkpoints(tmp_path)) == 1 and history[-1]["step"] < BEST["max_steps"]
    best = transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path / checkpoints(tmp_path)[0]))
    compare.assert_same_bits(values, best.state_dict())


def test_a_job_whose_best_values_cannot_be_read_has_not_ended(tmp_path: Path, job: str) -> None:
    class Cut(transformers.TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if "train_loss" in state.log_history[-1]:
                os.truncate(Path(state.best_model_checkpoint, "model.safetensors"), 100)

    trainer = make_long(tmp_path, job, BEST, Cut())
    with pytest.raises(tierd.Error, match="was cut off"):
        trainer.train()
    trainer.model.load_state_dict(trainer.model.state_dict())
    trainer.args.load_best_model_at_end = False
    # With that learning rate no more: whether values become infinite soon depends on the processor.
    trainer.args.max_steps = trainer.state.global_step + 1
    trainer.pop_callback(transformers.EarlyStoppingCallback)
    trainer.train()
    assert trainer.state.global_step == trainer.args.max_steps


def test_a_job_that_has_ended_with_its_best_values_is_not_trained_on(tmp_path: Path, job: str) -> None:
    trainer = make_long(tmp_path, job, BEST | {"save_total_limit": None})
    trainer.train()
    values, step = trainer.model.state_dict(), trainer.state.global_step
    found = trainer.evaluate()["eval_loss"]
    assert found == trainer.state.best_metric
    last = str(tmp_path / f"checkpoint-{step}")
    for resume in (None, True, last):
        output = trainer.train(resume_from_checkpoint=resume)
        assert (output.global_step, trainer.state.global_step, trainer.evaluate()["eval_loss"]) == (step, step, found)
        compare.assert_same_bits(trainer.model, values)
    with pytest.raises(tierd.Error, match=f"checkpoint-3 is of step 3 of job {job}, and job {job} stands at step"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    trainer.args.max_steps += 8
    with pytest.raises(tierd.Error, match=f"job {job} has ended with the values of its best checkpoint, .*checkpoint-"):
        trainer.train()
    compare.assert_same_bits(trainer.model, values)


def adapted() -> Any:
    """GPT-2, frozen, with adapters."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    model = peft.get_peft_model(transformer_models.gpt2(), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    return model


def partly_frozen() -> Any:
    model: Any = transformer_models.gpt2()
    model.transformer.h[0].requires_grad_(False)
    return model


@pytest.mark.parametrize("make_model", [adapted, partly_frozen, transformer_models.mixtral])
def test_best_values_are_those_of_the_checkpoint(make_model: Callable[[], Any], tmp_path: Path, job: str) -> None:
    """Of adapters, which are all that it has; with what is frozen; and where its names are not those of the model."""
    options = BEST | {"make_model": make_model}
    ours = make_long(tmp_path / "ours", job, options)
    values, log = finished(ours)
    theirs = make_long(tmp_path / "theirs", None, options)
    expected, history = finished(theirs)
    assert log == history
    best = ours.state.best_global_step
    assert 0 < best < ours.state.global_step
    assert best == theirs.state.best_global_step
    if make_model is transformer_models.mixtral:
        # Transformers leaves the last step's in those that it has renamed.
        expected = type(ours.model).from_pretrained(ours.state.best_model_checkpoint).state_dict()
    compare.assert_same_bits(values, expected)


# ---- Checkpoints


def test_checkpoints_are_loaded_by_transformers_and_say_of_which_step_they_are(tmp_path: Path, job: str) -> None:
    trainer = make(tmp_path, job, save_strategy="steps", save_steps=2, save_total_limit=2)
    trainer.train()
    last = tmp_path / "checkpoint-8"
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-6", last.name]
    assert json.loads((last / "tierd.json").read_text()) == {"job": job, "step": 8}
    assert not {"optimizer.pt", "scheduler.pt", "rng_state.pth"} & {path.name for path in last.iterdir()}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(str(last))
    compare.assert_same_bits(loaded.state_dict(), trainer.model.state_dict())
    # Both mean the step at which the job stands, and no more steps are due.
    for resume in (True, str(last)):
        trainer.train(resume_from_checkpoint=resume)
        compare.assert_same_bits(loaded.state_dict(), trainer.model.state_dict())
    with pytest.raises(tierd.Error, match=f"checkpoint-6 is of step 6 of job {job}, and job {job} stands at step 8"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    with pytest.raises(tierd.Error, match="nowhere has no tierd.json"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "nowhere"))
    other = make(tmp_path, "other")
    with pytest.raises(tierd.Error, match=f"checkpoint-8 is of step 8 of job {job}, and job other stands at step 0"):
        other.train(resume_from_checkpoint=True)


def test_a_checkpoint_says_the_step_of_the_job_which_values_that_were_loaded_take_too(tmp_path: Path, job: str) -> None:
    trainer = make(tmp_path, job, save_strategy="steps", save_steps=2, max_steps=2)
    trainer.train()
    trainer.model.load_state_dict(trainer.model.state_dict())
    trainer.args.max_steps = 4
    trainer.train()
    last = tmp_path / "checkpoint-4"
    assert json.loads((last / "tierd.json").read_text()) == {"job": job, "step": 5}
    assert trainer.train(resume_from_checkpoint=str(last)).global_step == 4


def test_a_checkpoint_of_adapters_reads_nothing_of_the_base(
    tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        transformer_models.gpt2(), peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True)
    )
    model.add_adapter("other", peft.LoraConfig(target_modules=["c_proj"], fan_in_fan_out=True))
    trainer = Trainer(model, arguments(tmp_path, max_steps=1), train_dataset=sentences(4), job=job)
    trainer.train()
    model.save_pretrained(tmp_path / "whole")
    units = tierd.torch.job_of(model).units
    membership, gathered = tierd.torch.job_of(model).membership, set()
    gather = membership.capsules

    def watch(unit: int, name: str) -> Any:
        gathered.add(unit)
        return gather(unit, name)

    monkeypatch.setattr(membership, "capsules", watch)
    trainer.save_model(str(tmp_path / "alone"))
    assert gathered == {unit.index for unit in units if any("lora" in name for name in unit.names)}
    assert len(gathered) < len(units)
    for folder in ("", "other"):
        files = [tmp_path / kind / folder / "adapter_model.safetensors" for kind in ("whole", "alone")]
        compare.assert_same_bits(*(safetensors.torch.load_file(file) for file in files))


def test_more_steps_are_trained_from_where_the_job_stands(tmp_path: Path, job: str) -> None:
    ours = make(tmp_path, job, optim="sgd", lr_scheduler_type="constant", max_steps=3)
    ours.train()
    ours.args.max_steps = 8
    ours.train()
    theirs = make(tmp_path, None, optim="sgd", lr_scheduler_type="constant")
    theirs.train()
    assert logged(ours, "loss") == logged(theirs, "loss")
    compare.assert_same_bits(ours.model, theirs.model)


def test_a_model_that_is_made_by_the_trainer_is_the_one_of_transformers(tmp_path: Path, job: str) -> None:
    trainers: list[Any] = []
    kinds: list[tuple[Any, dict[str, Any]]] = [(Trainer, {"job": job}), (transformers.Trainer, {})]
    for kind, more in kinds:
        own = arguments(tmp_path, optim="sgd", max_steps=2)
        trainers.append(kind(model_init=transformer_models.gpt2, args=own, train_dataset=sentences(10), **more))
        trainers[-1].train()
    compare.assert_same_bits(trainers[0].model, trainers[1].model)


@pytest.mark.parametrize(
    "options",
    [
        {"fp16": True},
        {"auto_find_batch_size": True},
        {"bf16_full_eval": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_does_not_go_with_tierd_is_named(options: dict[str, Any], tmp_path: Path, daemon: Daemon) -> None:
    with pytest.raises(tierd.Error, match=next(iter(options))):
        make(tmp_path, "refused", eval_dataset=sentences(2), **options)


def test_a_search_and_a_job_that_a_trainer_has_not_trained_are_refused(tmp_path: Path, job: str) -> None:
    trainer = make(tmp_path, job)
    with pytest.raises(tierd.Error, match="a job is one"):
        trainer.hyperparameter_search()
    model = trainer.model
    optimizer = trainer.create_optimizer()
    tierd.torch.initialize(model, optimizer, job=job)
    model(**{key: value[None] for key, value in sentences(1)[0].items()}).loss.backward()
    optimizer.step()
    tierd.torch.close(model)
    with pytest.raises(tierd.Error, match=f"job {job} stands at step 1, and"):
        make(tmp_path, job, max_steps=2).train()


# ---- The example


def start_example(folder: Path, job: str) -> Child:
    """examples/pytorch/trainer.py, in a child: importing it all once more takes longer than it runs."""
    text = folder.parent / "text"
    text.write_bytes((EXAMPLE.parents[2] / "README.md").read_bytes()[:4096])
    sizes = ["--layers=1", "--width=64", "--context=32", "--steps=30", "--save-every=10", "--log-every=1"]
    return start_script(EXAMPLE, str(text), f"--job={job}", f"--output={folder}", *sizes)


def test_the_example_goes_on_after_a_kill_and_leaves_a_model_that_transformers_loads(tmp_path: Path) -> None:
    found = []
    for job in ("example", "example-killed"):
        folder = tmp_path / job / "output"
        folder.parent.mkdir()
        if job == "example-killed":
            child = start_example(folder, job)
            deadline = time.monotonic() + PATIENCE
            while not (folder / "checkpoint-10").exists():
                assert child.returncode is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            child.kill()
            child.assert_killed()
        said = start_example(folder, job).result()
        assert re.search(r"^step 30: loss of the evaluation \d", said, re.MULTILINE)
        assert (said.count("'loss'") == 30) == (job == "example")
        model = transformers.AutoModelForCausalLM.from_pretrained(str(folder))
        log = [json.loads(line) for line in (folder / "tierd_log.jsonl").read_text().splitlines()]
        found.append((model.state_dict(), [entry["loss"] for entry in log if "loss" in entry]))
    compare.assert_same_bits(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert found[0][1][-1] < found[0][1][0]
