"""Training GPT-2 with its optimizer's state on NVMe, beside DeepSpeed's ZeRO-3, on the same disk and in turns: bench_deepspeed.py
TIERD [--json FILE] [--quick] [NAME…]. run_bench runs it, in an environment that ./run makes; DeepSpeed is in another one, that
TIERD_BENCH_PYTHON names, and does what peer.py says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from support import SHAPES, Arguments, Daemon, count_of, daemon, gpt2, in_turns, wait_for_last_step

import tierd.torch
from tierd import _core

PAIRS = 9
SECONDS = 4.0  # of a turn, at least
LIMIT = 2.5
MOMENTS = {"torch_vs_deepspeed": "fp32", "torch_vs_deepspeed_int8": "int8"}
NVME_BYTES = 6 << 30
# Here computing takes as long as the disk, or a little less. With more tokens the figure says less of either's step: computing
# is all that is left (docs/performance.md has other sizes). peer.py has as many.
BATCH = (1, 256)


class Peer:
    """DeepSpeed in a process of its own; missing: what it lacks here, or None."""

    def __init__(self, folder: str, is_quick: bool) -> None:
        program = os.environ.get("TIERD_BENCH_PYTHON", "python3")
        command = [program, str(Path(__file__).parents[1] / "peer.py"), "train", *map(str, SHAPES[is_quick])]
        # The package's PYTHONPATH is not for it.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        Path(folder).mkdir()
        self.process = subprocess.Popen(
            [*command, str(os.cpu_count()), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        word, _, rest = self.answer().partition(" ")
        self.missing = rest if word == "missing" else None
        if self.missing is None:
            print(f"torch_vs_deepspeed: {rest}", flush=True)

    def answer(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"DeepSpeed ended with status {self.process.wait()}")
        return line.strip()

    def run(self, seconds: float) -> float:
        """Parameters a second."""
        assert self.process.stdin
        self.process.stdin.write(f"train {seconds}\n")
        self.process.stdin.flush()
        return float(self.answer())

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def main() -> int:
    arguments = Arguments(MOMENTS)
    results: list[dict[str, Any]] = []
    if arguments.wanted:
        with daemon(arguments.tierd, 2 << 30, NVME_BYTES) as node:
            peer = Peer(f"{node.disk}/deepspeed", arguments.is_quick)
            try:
                results = [measured(name, node, peer, arguments.is_quick) for name in arguments.wanted]
            finally:
                peer.stop()
    return arguments.write(results)


def measured(name: str, node: Daemon, peer: Peer, is_quick: bool) -> dict[str, Any]:
    if peer.missing is not None:
        return dict(name=name, skipped=peer.missing)
    ours = Ours(name, node.socket, is_quick)
    seconds = 0.1 if is_quick else SECONDS
    ours.run(seconds)
    value, spread = in_turns(
        1 if is_quick else PAIRS,
        lambda: ours.run(seconds),
        lambda: peer.run(seconds),
        lambda mine, theirs: f"{name}: tierd {mine / 1e6:.1f}, DeepSpeed {theirs / 1e6:.1f} M parameters/s",
    )
    ours.stop()
    return dict(name=name, value=value, unit="ratio", bound="least", limit=LIMIT, spread=spread)


class Ours:
    """Like DeepSpeed it has parameters and gradients in memory; a turn is over when its last step is durable."""

    def __init__(self, name: str, socket: str, is_quick: bool) -> None:
        self.model = gpt2(is_quick)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.text = torch.randint(0, 256, BATCH)
        tierd.torch.initialize(
            self.model,
            self.optimizer,
            job=name,
            socket=socket,
            moments=MOMENTS[name],
            parameter_placement=_core.PLACE_HOST,
            early_updates=True,
        )

    def run(self, seconds: float) -> float:
        """Parameters a second."""
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < seconds:
            self.model(input_ids=self.text, labels=self.text).loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            count += 1
        wait_for_last_step(self.model, is_durable=True)
        return count * count_of(self.model) / (time.perf_counter() - start)

    def stop(self) -> None:
        tierd.torch.close(self.model)


sys.exit(main())
