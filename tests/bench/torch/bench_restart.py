"""How long a trainer that was killed takes to come back: bench_restart.py TIERD [--json FILE] [--quick] [NAME…]. run_bench runs
it, in an environment that ./run makes. The trainer is a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from support import Arguments, Daemon, daemon, gpt2

import tierd.torch

NAME = "torch_restart_s"
LIMIT = 1.0
KILLS = 5


def main() -> int:
    arguments = Arguments([NAME], train={}, again=dict(action="store_true"))
    if arguments.given.train:
        train(arguments.given.train, arguments.is_quick, arguments.given.again)
        return 0
    results: list[dict[str, Any]] = []
    if arguments.wanted:
        with daemon(arguments.tierd, 6 << 30) as node:
            results = [measured(node, arguments)]
    return arguments.write(results)


def measured(node: Daemon, arguments: Arguments) -> dict[str, Any]:
    """From kill -9 to the next step that is applied, less what the new trainer's interpreter and imports take."""
    trainer, _, _ = begun(node, arguments)
    times = []
    for _ in range(1 if arguments.is_quick else KILLS):
        before = said(trainer)
        killed = time.monotonic()
        trainer.kill()
        trainer.wait()
        trainer, imports, after = begun(node, arguments, "--again")
        if after["step"] <= before["step"]:
            raise RuntimeError(f"killed after step {before['step']}, it went on with step {after['step']}")
        times.append(after["time"] - killed - imports)
        step = f"a step alone takes {before['seconds']:.2f} s"
        print(f"restart: {times[-1]:.2f} s beside {imports:.1f} s of imports; {step}", flush=True)
    trainer.kill()
    trainer.wait()
    spread = max(times) / min(times)
    return dict(name=NAME, value=statistics.median(times), unit="s", bound="most", limit=LIMIT, spread=spread)


def begun(node: Daemon, arguments: Arguments, *more: str) -> tuple[subprocess.Popen[str], float, dict[str, Any]]:
    """A trainer, how long it took until all was imported, and what it says of its first step."""
    start = time.monotonic()
    command = arguments.again("--train", node.socket, *more)
    trainer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    imported = said(trainer)["imported"] - start
    return trainer, imported, said(trainer)


def said(trainer: subprocess.Popen[str]) -> dict[str, Any]:
    assert trainer.stdout
    line = trainer.stdout.readline()
    if not line:
        raise RuntimeError(f"the trainer ended with status {trainer.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found


def train(socket: str, is_quick: bool, is_again: bool) -> None:
    """GPT-2, a batch of 1 × 16, so that little of the time is computed, until it is killed; says when each step is applied.
    One that is started anew leaves the values to the job, which has them: making them takes seconds."""
    # What the first model of its class imports is none of it.
    gpt2(is_small=True)
    print(json.dumps({"imported": time.monotonic()}), flush=True)
    with tierd.torch.init(values=not is_again):
        model = gpt2(is_quick)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tierd.torch.initialize(model, optimizer, job="bench-restart", socket=socket)
    job = tierd.torch.job_of(model)
    text = torch.randint(0, 256, (1, 16))
    while True:
        start = time.monotonic()
        model(input_ids=text, labels=text).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        job.finish()
        end = time.monotonic()
        print(json.dumps({"step": job.core.state()["step"], "time": end, "seconds": end - start}), flush=True)


sys.exit(main())
