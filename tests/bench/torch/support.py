"""What benches of the package share: arguments and results, a daemon of the bench's own, models, fio, and fair comparisons."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

import tierd.torch
from tierd import _core

MIB = 1 << 20
# Layers of GPT-2, its width and its vocabulary; small or not.
SHAPES = {True: (2, 64, 256), False: (12, 768, 50257)}


class Daemon:
    """One that runs: its process, its socket, and a folder on the disk that the bench measures."""

    def __init__(self, process: subprocess.Popen[bytes], socket: str, disk: str) -> None:
        self.pid = process.pid
        self.socket = socket
        self.disk = disk

    def moved_bytes(self) -> int:
        """What the kernel has read and written for it."""
        lines = dict(line.split(": ") for line in Path(f"/proc/{self.pid}/io").read_text().splitlines())
        return int(lines["read_bytes"]) + int(lines["write_bytes"])


@contextmanager
def daemon(program: str, host_budget: int, nvme_bytes: int = 0) -> Iterator[Daemon]:
    """One with so much memory and NVMe, in bytes; nvme_bytes=0: it has no NVMe."""
    with (
        tempfile.TemporaryDirectory(prefix="tierd-bench-", dir="/tmp") as folder,
        tempfile.TemporaryDirectory(prefix="disk-") as disk,
    ):
        command = [program, "--socket", f"{folder}/socket", "--state-dir", f"{folder}/state", "--log-level", "warning"]
        command += ["--host-budget", str(host_budget), "--file-system", "memory"]
        if nvme_bytes:
            command += ["--nvme", f"{disk}:{nvme_bytes}"]
        process = subprocess.Popen(command)
        try:
            yield Daemon(process, f"{folder}/socket", disk)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def gpt2(is_small: bool) -> nn.Module:
    """GPT-2 with 124 million parameters, in bf16."""
    layers, width, words = SHAPES[is_small]
    config = transformers.GPT2Config(
        n_layer=layers,
        n_embd=width,
        n_head=width // 64,
        vocab_size=words,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    torch.manual_seed(0)
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model.to(torch.bfloat16).train()


def llama(*, is_small: bool, **more: Any) -> nn.Module:
    """A Llama of 1.1 billion parameters, in fp32."""
    sizes: dict[str, Any] = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, vocab_size=256)
    if not is_small:
        sizes = dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, vocab_size=32000)
    config = transformers.LlamaConfig(num_attention_heads=32, num_key_value_heads=4, **sizes, **more)
    model: nn.Module = transformers.LlamaForCausalLM(config)
    return model


def wait_for_last_step(model: nn.Module, *, is_durable: bool) -> None:
    """Until it is applied, or until the daemon has written all of it: what is measured next then has the disk to itself."""
    last = tierd.torch.job_of(model)._last
    assert last
    last[1].wait(_core.DURABLE if is_durable else _core.DONE)


def count_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def fio_is_installed() -> bool:
    return os.system("fio --version >/dev/null 2>&1") == 0


class Fio:
    """fio that reads and writes at once, into and from 128 MiB, at the depth at which it is fastest: as fio.c has it."""

    def __init__(self, folder: str, is_quick: bool) -> None:
        self.file = f"{folder}/fio"
        self._run("write", 16, None)
        seconds = 0.1 if is_quick else 0.5
        self.depth = max((8, 16, 32, 64), key=lambda depth: self._run("readwrite", depth, seconds))

    def rate(self, seconds: float) -> float:
        """Bytes a second, of both directions."""
        return self._run("readwrite", self.depth, seconds)

    def _run(self, direction: str, depth: int, seconds: float | None) -> float:
        block = 128 // depth
        command = (
            f"fio --name=bench --filename={self.file} --filesize=1g --rw={direction} --bs={block}m --iomem_align=2m"
        )
        command += f" --iodepth={depth} --ioengine=io_uring --direct=1 --fixedbufs --registerfiles --fallocate=none"
        command += " --output-format=json" + (f" --time_based --runtime={seconds * 1e3:.0f}ms" if seconds else "")
        environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        done = subprocess.run(command.split(), check=True, stdout=subprocess.PIPE, env=environment)
        [job] = json.loads(done.stdout)["jobs"]
        rate: float = job["read"]["bw_bytes"] + job["write"]["bw_bytes"]
        return rate


class Arguments:
    """What run_bench gives each of them: its program, a file for results, and the names of those that are wanted; and what a
    bench gives a process that it starts of itself."""

    def __init__(self, results: Iterable[str], **hidden: Any) -> None:
        """Each keyword is an option that is not shown, with what argparse has to know of it."""
        parser = argparse.ArgumentParser()
        parser.add_argument("tierd")
        parser.add_argument("--json", type=Path)
        parser.add_argument("--quick", action="store_true")
        parser.add_argument("names", nargs="*")
        for name, settings in hidden.items():
            parser.add_argument(f"--{name}", help=argparse.SUPPRESS, **settings)
        self.given = parser.parse_intermixed_args()
        self.tierd: str = self.given.tierd
        self.is_quick: bool = self.given.quick
        self.wanted = [name for name in results if not self.given.names or name in self.given.names]

    def again(self, *words: str) -> list[str]:
        """A command that runs the bench's program again, with such options."""
        return [sys.executable, sys.argv[0], "none", *words, *(["--quick"] if self.is_quick else [])]

    def write(self, results: list[dict[str, Any]]) -> int:
        """Writes those that are wanted; the exit status."""
        if self.given.json:
            self.given.json.write_text(json.dumps([result for result in results if result["name"] in self.wanted]))
        return 0


def in_turns(
    pairs: int, ours: Callable[[], float], theirs: Callable[[], float], tell: Callable[[float, float], str]
) -> tuple[float, float]:
    """How often ours goes into theirs, as a median of pairs, and how much theirs differs from itself. Tells both means."""
    ratios, selves = [], []
    for pair in range(pairs):
        # Who is first changes, and neither is always beside its own.
        order = [ours, theirs, theirs, ours] if pair % 2 else [theirs, ours, ours, theirs]
        values = [(side, side()) for side in order]
        mine = [value for side, value in values if side is ours]
        others = [value for side, value in values if side is theirs]
        ratios.append(sum(mine) / sum(others))
        selves.append(max(others) / min(others))
        print(tell(sum(mine) / 2, sum(others) / 2), flush=True)
    return statistics.median(ratios), statistics.median(selves)
