"""The examples do what they say: they train, and go on after a kill to the same bits."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import compare
from forked import Child, start_script

with contextlib.suppress(ImportError):  # they are in one of the two environments
    import peft  # noqa: F401
    import transformers

ROOT = Path(__file__).resolve().parents[2]
RLHF_READER = ROOT / "examples" / "pytorch" / "rlhf_reader.py"
PRETRAIN = ROOT / "examples" / "pytorch" / "pretrain.py"
FINETUNE = ROOT / "examples" / "pytorch" / "finetune_lora.py"
SIZES = ["--layers=2", "--width=64", "--context=32", "--batch=4", "--passes=2", "--warmup=4", "--log-every=1"]


@dataclass
class Run:
    """Starts of pretrain.py for one job, which ends with a file of its parameters."""

    text: Path
    job: str
    parameters: Path

    def start(self) -> Child:
        return start_script(PRETRAIN, str(self.text), f"--job={self.job}", f"--save={self.parameters}", *SIZES)

    def finish(self) -> dict[int, str]:
        """The loss of each step that this start took."""
        return losses_in(self.start().result())

    def kill_after(self, step: int) -> dict[int, str]:
        """The same of a start that is killed when it has said that it took the step."""
        child = self.start()
        said = ""
        for line in child.stdout:
            said += line
            if line.startswith(f"step {step}:"):
                break
        child.kill()
        return losses_in(said + child.communicate()[0])

    def values(self) -> dict[str, torch.Tensor]:
        values: dict[str, torch.Tensor] = torch.load(self.parameters, weights_only=True)
        return values


def losses_in(said: str) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"^step (\d+): loss (\S+),.*\n", said, re.MULTILINE)}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """As much as twenty steps of a pass want."""
    path = tmp_path / "text"
    path.write_bytes((ROOT / "README.md").read_bytes()[: 20 * 4 * 32])
    return path


def test_a_killed_pretraining_ends_with_the_bits_of_an_undisturbed_one_and_then_takes_no_more_steps(
    text: Path, tmp_path: Path
) -> None:
    undisturbed = Run(text, "pretrain", tmp_path / "undisturbed.pt")
    killed = Run(text, "pretrain-killed", tmp_path / "killed.pt")
    losses = undisturbed.finish()
    before = killed.kill_after(25)
    after = killed.finish()
    assert list(losses) == list(range(1, 41))
    assert float(losses[40]) < float(losses[1])
    # When it says that it took a step the one before is applied; a step may be taken that it did not come to say.
    assert 25 <= min(after) <= max(before) + 2
    said = before | after
    assert said.items() <= losses.items()
    assert len(said) >= len(losses) - 1
    compare.assert_same_bits(killed.values(), undisturbed.values())
    killed.parameters.unlink()
    told = killed.start().result()
    assert told == "job pretrain-killed has taken all its steps: give it more --passes, or another --job\n"
    compare.assert_same_bits(killed.values(), undisturbed.values())


if "TIERD_TORCHRUN" in os.environ:  # at night: each rank imports all of it anew

    def test_ranks_that_are_killed_under_torchrun_end_with_the_bits_of_undisturbed_ones(
        text: Path, tmp_path: Path
    ) -> None:
        undisturbed, killed = tmp_path / "undisturbed.pt", tmp_path / "killed.pt"
        launch([str(text), "--job=torchrun", f"--save={undisturbed}", *SIZES], [])
        launch([str(text), "--job=torchrun-killed", f"--save={killed}", *SIZES], [3, 11])
        compare.assert_same_bits(torch.load(killed), torch.load(undisturbed))


def launch(arguments: list[str], kills: list[int]) -> None:
    """Two ranks of pretrain.py by torchrun; one of them is killed when they have come to each of these steps."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3"]
    with subprocess.Popen([*command, str(PRETRAIN), *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for victim, step in enumerate(kills):
            next(line for line in process.stdout if line.startswith(f"step {step}:"))
            ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(ranks[victim]), signal.SIGKILL)
        said = process.stdout.read()
    assert process.returncode == 0
    assert max(losses_in(said)) == 20


def test_a_policy_is_trained_by_what_another_process_samples_from_it() -> None:
    said = start_script(RLHF_READER, "--steps=24", "--width=16", "--log-every=1", "--job=rlhf").result()
    lines = re.findall(r"^step (\d+): reward (\S+), samples of the job's step (\d+)$", said, re.MULTILINE)
    assert [int(step) for step, _, _ in lines] == list(range(1, 25))
    rewards = [float(reward) for _, reward, _ in lines]
    assert sum(rewards[-4:]) > sum(rewards[:4])
    sampled = [int(step) for _, _, step in lines]
    # What is taken for step i was made while the job stood at a step before it, and not always at the same one.
    assert sampled == sorted(sampled)
    assert all(step < i for i, step in enumerate(sampled, start=1))
    assert sampled[-1] > 0


def test_adapters_that_are_finetuned_learn_and_are_saved(text: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    config = transformers.LlamaConfig(vocab_size=256, bos_token_id=0, eos_token_id=0, **sizes)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    options = ["--context=32", "--batch=4", "--passes=2", "--log-every=1", "--learning-rate=0.05", "--checkpoints"]
    paths = [str(tmp_path / "model"), str(text), f"--save={tmp_path / 'adapters'}"]
    losses = losses_in(start_script(FINETUNE, *paths, *options).result())
    assert list(losses) == list(range(1, 41))
    assert float(losses[40]) < float(losses[1]) - 0.05
    adapters = load_file(tmp_path / "adapters" / "adapter_model.safetensors")
    # Seven matrices in each of two layers; what comes second is zero until it is trained.
    assert len(adapters) == 2 * 7 * 2
    assert all(values.any() for values in adapters.values())


def test_help_names_all_options() -> None:
    said = start_script(PRETRAIN, "--help").result()
    for option in ("FILE", "--job", "--nvme", "--passes", "--save"):
        assert option in said
