"""What benches of the package share: a daemon of the bench's own, a model, fio, and the file of results."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
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
    """fio that reads and writes at once, with transfers of 1 MiB, at the depth at which it is fastest: as fio.c has it."""

    def __init__(self, folder: str, is_quick: bool) -> None:
        self.file = f"{folder}/fio"
        self._run("write", 16, None)
        seconds = 0.1 if is_quick else 0.5
        self.depth = max((8, 16, 32, 64), key=lambda depth: self._run("readwrite", depth, seconds))

    def rate(self, seconds: float) -> float:
        """Bytes a second, of both directions."""
        return self._run("readwrite", self.depth, seconds)

    def _run(self, direction: str, depth: int, seconds: float | None) -> float:
        command = (
            f"fio --name=bench --filename={self.file} --filesize=1g --rw={direction} --bs=1m,1m,4m --iomem_align=2m"
        )
        command += f" --iodepth={depth} --ioengine=io_uring --direct=1 --fixedbufs --registerfiles --fallocate=none"
        command += " --output-format=json" + (f" --time_based --runtime={seconds * 1e3:.0f}ms" if seconds else "")
        environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        done = subprocess.run(command.split(), check=True, stdout=subprocess.PIPE, env=environment)
        [job] = json.loads(done.stdout)["jobs"]
        rate: float = job["read"]["bw_bytes"] + job["write"]["bw_bytes"]
        return rate


def make_parser() -> argparse.ArgumentParser:
    """Of what run_bench gives each of them: its program, a file for results, and the names of those that are wanted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tierd")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("names", nargs="*")
    return parser


def write_results(path: Path | None, results: list[dict[str, Any]]) -> None:
    if path:
        path.write_text(json.dumps(results))
