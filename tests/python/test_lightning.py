"""Lightning's Trainer with the strategy of tierd: the same numbers as without it, whatever ends the process."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import compare
import tierd
from forked import Child, start_ranks

pl: Any = pytest.importorskip("lightning.pytorch", reason="there is no Lightning")
callbacks: Any = pytest.importorskip("lightning.pytorch.callbacks")

from tierd.lightning import Strategy

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore")

Values = dict[str, torch.Tensor]


class Module(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, scheduler: str = "step") -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1)) for _ in range(3))
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 4)
        self.scheduler = scheduler

    def loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        hidden = batch[0]
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return nn.functional.cross_entropy(self.head(self.norm(hidden)), batch[1])

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("val", self.loss(batch), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler: Any
        if self.scheduler == "step":
            scheduler = {"scheduler": torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 12), "interval": "step"}
        else:
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.1)
            scheduler = {"scheduler": scheduler, "monitor": "val"}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def batches(size: int, **options: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(36, 16, generator=generator), torch.randint(4, (36,), generator=generator))
    return DataLoader(data, size, **options)


class History(callbacks.Callback):  # type: ignore[misc]
    """What each validation gives, by step and batch, in a file: what is done again has to give it again."""

    def __init__(self, folder: Path):
        self.file = folder / "history"

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if trainer.sanity_checking:
            return
        place = f"{trainer.current_epoch} {trainer.fit_loop.batch_idx} {trainer.fit_loop.total_batch_idx} {trainer.global_step}"
        rate = trainer.optimizers[0].param_groups[0]["lr"] if trainer.optimizers else 0.0
        with self.file.open("a") as file:
            file.write(json.dumps([place, float(trainer.callback_metrics["val"]), rate]) + "\n")

    def read(self) -> dict[str, tuple[float, float]]:
        found: dict[str, tuple[float, float]] = {}
        for place, *values in map(json.loads, self.file.read_text().splitlines()):
            assert found.setdefault(place, tuple(values)) == tuple(values), place
        return found


def make(folder: Path, job: str | None, *more: Any, devices: int = 1, **options: Any) -> Any:
    """A Trainer that writes checkpoints; without a job it is Lightning's own."""
    folder.mkdir(parents=True, exist_ok=True)
    pl.seed_everything(3)
    sizes = {"max_epochs": 3, "accumulate_grad_batches": 2, "val_check_interval": 4}
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    files = callbacks.ModelCheckpoint(
        folder,
        "{step}",
        monitor="val",
        save_top_k=2,
        every_n_train_steps=3,
        save_last=True,
        enable_version_counter=False,
    )
    strategy: Any = "ddp" if job is None else Strategy(job)
    return pl.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=strategy,
        callbacks=[files, History(folder), *more],
        default_root_dir=folder,
        **{**quiet, **sizes, **options},
    )


def fit(trainer: Any, module: Any, **options: Any) -> Values:
    trainer.fit(module, batches(4, shuffle=True, num_workers=0), batches(12), **options)
    return {name: value.clone() for name, value in module.state_dict().items()}


# ---- Going on. These come first: children cannot have a process group that was made before they were forked.


POINTS = [
    "on_train_start",
    "on_train_epoch_start",
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
    "on_validation_batch_start",
    "on_validation_end",
    "on_train_epoch_end",
]


class Kill(callbacks.Callback):  # type: ignore[misc]
    """Kills the process the next time that a callback of this name comes from a step on; of several, one rank's."""

    def __init__(self, point: str, step: int, rank: str = "0"):
        def kill(trainer: Any, *arguments: Any) -> None:
            is_here = os.environ.get("RANK", rank) == rank
            if is_here and trainer.global_step >= step and not trainer.sanity_checking:
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(self, point, kill)


def run(folder: Path, options: dict[str, Any], *more: Any) -> None:
    """A training in a child, which is alone or one rank of several."""
    folder = folder / os.environ.get("RANK", "0")
    torch.save(fit(make(folder, *more, **options), Module("plateau")), folder / "end")


def ends(children: list[Child], folder: Path) -> list[Values]:
    """What came of them."""
    for child in children:
        child.result()
    return [torch.load(folder / str(rank) / "end") for rank in range(len(children))]


def files(folder: Path) -> dict[str, Values]:
    return {path.name: torch.load(path, weights_only=False)["state_dict"] for path in folder.glob("*.ckpt")}


def test_a_training_that_is_killed_anywhere_ends_as_an_undisturbed_one(tmp_path: Path, job: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    (undisturbed,) = ends([Child(run, theirs, {}, None)], theirs)
    for step, point in enumerate(random.Random(1).sample(POINTS, len(POINTS))):
        Child(run, ours, {}, job, Kill(point, step)).assert_killed()
    compare.assert_same_bits(ends([Child(run, ours, {}, job)], ours)[0], undisturbed)
    assert History(ours / "0").read() == History(theirs / "0").read()
    kept, expected = files(ours / "0"), files(theirs / "0")
    assert kept.keys() == expected.keys()
    for name, values in expected.items():
        compare.assert_same_bits(kept[name], values)


def start_both(folder: Path, *more: Any) -> list[Child]:
    """Two ranks."""
    options = {"devices": 2, "accumulate_grad_batches": 1}
    return start_ranks(2, run, folder, options, *more, TORCHELASTIC_RUN_ID="tierd")


def test_ranks_that_are_killed_give_every_bit_of_those_of_ddp(tmp_path: Path, job: str) -> None:
    first, second = start_both(tmp_path / "ours", job, Kill("on_train_batch_end", 3, "1"))
    second.assert_killed()
    first.communicate()
    assert first.returncode == 1
    ours = ends(start_both(tmp_path / "ours", job), tmp_path / "ours")
    theirs = ends(start_both(tmp_path / "theirs", None), tmp_path / "theirs")
    for our, their in zip(ours, theirs, strict=True):
        # Each rank has statistics of its own, and with ddp those of rank 0.
        parameters = {name: value for name, value in our.items() if "running" not in name}
        compare.assert_same_bits(parameters, {name: their[name] for name in parameters})


# ---- The same numbers


@pytest.mark.parametrize("scheduler", ["step", "plateau"])
def test_sgd_gives_every_bit_of_lightning(scheduler: str, tmp_path: Path, job: str) -> None:
    ends, histories = [], []
    for name in (job, None):
        trainer = make(tmp_path / str(name), name)
        ends.append(fit(trainer, Module(scheduler)))
        histories.append(History(tmp_path / str(name)).read())
    compare.assert_same_bits(*ends)
    assert histories[0] == histories[1]
    assert len({rate for _, rate in histories[1].values()}) > 1


def test_gradients_are_clipped_by_their_norm(tmp_path: Path, job: str) -> None:
    ends = [
        fit(make(tmp_path / str(name), name, gradient_clip_val=0.05, max_epochs=1), Module()) for name in (job, None)
    ]
    compare.assert_close(ends[0], ends[1], 1e-6)
    free = fit(make(tmp_path / "free", None, max_epochs=1), Module())
    assert compare.difference(ends[1], free, 1e-3) is not None
    with pytest.raises(tierd.Error, match="clip"):
        options: dict[str, Any] = {"gradient_clip_val": 0.05, "gradient_clip_algorithm": "value"}
        fit(make(tmp_path / "value", "by-value", **options), Module())


# ---- Files


def test_files_have_the_values_and_no_optimizer(tmp_path: Path, job: str) -> None:
    module = Module()
    trainer = make(tmp_path, job)
    values = fit(trainer, module)
    last = tmp_path / "end.ckpt"
    trainer.save_checkpoint(last)
    found = torch.load(last, weights_only=False)
    assert found["optimizer_states"] == [{}]
    assert found["tierd.lightning"] == {"job": job, "step": trainer.global_step}
    compare.assert_same_bits(Module.load_from_checkpoint(last).state_dict(), values)
    val = trainer.validate(module, batches(12), verbose=False)
    assert val == make(tmp_path / "other", None).validate(Module(), batches(12), last, verbose=False)
    with pytest.raises(tierd.Error, match=f"would become those of job {job}"):
        trainer.validate(module, batches(12), str(last))


def test_a_file_of_the_job_is_gone_on_with_where_the_job_stands_and_others_begin_new_jobs(
    tmp_path: Path, job: str
) -> None:
    fit(make(tmp_path, job, max_epochs=2), Module())
    fit(make(tmp_path / "theirs", None, max_epochs=2), Module())
    oldest = str(min(tmp_path.glob("step=*.ckpt"), key=lambda path: int(path.stem.partition("=")[2])))
    theirs = str(tmp_path / "theirs" / "last.ckpt")
    with pytest.raises(tierd.Error, match=f"job {job} has been trained, and .*theirs/last.ckpt is not of it"):
        fit(make(tmp_path, job), Module(), ckpt_path=theirs)
    # The process has the rank already: each fit() takes it from the module of the last one.
    undisturbed = fit(make(tmp_path / "undisturbed", None), Module())
    compare.assert_same_bits(fit(make(tmp_path, job), Module(), ckpt_path=oldest), undisturbed)
    expected = fit(make(tmp_path / "expected", None), Module(), ckpt_path=theirs)
    compare.assert_same_bits(fit(make(tmp_path / "new", f"{job}-2"[-60:]), Module(), ckpt_path=theirs), expected)


# ---- Errors


def test_what_does_not_go_with_tierd_is_named(tmp_path: Path, job: str) -> None:
    module = Module()
    module.automatic_optimization = False
    with pytest.raises(tierd.Error, match="automatic_optimization=False"):
        make(tmp_path, job, accumulate_grad_batches=1).fit(module, batches(4))
    with pytest.raises(tierd.Error, match="several loaders"):
        make(tmp_path, job, val_check_interval=1.0).fit(Module(), [batches(4), batches(4)])
