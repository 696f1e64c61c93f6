"""What making a model in tierd.torch.init() costs, beside plain construction: bench_init.py TIERD [--json FILE] [--quick]
[NAME…]. run_bench runs it, in an environment that ./run makes. Each construction is a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from support import Arguments, llama

import tierd.torch

PAIRS = 5
LIMITS = {"torch_init_ratio": 1.3, "torch_init_memory": 2.0}


def main() -> int:
    arguments = Arguments(LIMITS, side=dict(choices=["plain", "init"]))
    if arguments.given.side:
        print(json.dumps(construct(arguments.given.side, arguments.is_quick)))
        return 0
    return arguments.write(measured(arguments) if arguments.wanted else [])


def measured(arguments: Arguments) -> list[dict[str, Any]]:
    """Constructions in turns, by pairs, of which each second one begins with the other side."""
    ratios, shares, plain_times = [], [], []
    for pair in range(1 if arguments.is_quick else PAIRS):
        sides = ["init", "plain"] if pair % 2 else ["plain", "init"]
        found = {side: run(side, arguments) for side in sides}
        plain, ours = found["plain"], found["init"]
        if plain["random"] != ours["random"]:
            raise RuntimeError("the random numbers after the construction differ")
        ratios.append(ours["seconds"] / plain["seconds"])
        shares.append(ours["bytes"] / ours["largest"])
        plain_times.append(plain["seconds"])
        print(f"init: tierd {ours['seconds']:.1f} s, PyTorch {plain['seconds']:.1f} s", flush=True)
    spread = max(plain_times) / min(plain_times)
    return [
        result("torch_init_ratio", statistics.median(ratios), spread),
        result("torch_init_memory", statistics.median(shares), max(shares) / min(shares)),
    ]


def result(name: str, value: float, spread: float) -> dict[str, Any]:
    return dict(name=name, value=value, unit="ratio", bound="most", limit=LIMITS[name], spread=spread)


def run(side: str, arguments: Arguments) -> dict[str, Any]:
    command = arguments.again("--side", side)
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def construct(side: str, is_quick: bool) -> dict[str, Any]:
    """A Llama of 1.1 billion parameters in fp32: seconds, and bytes in the process' memory at the most, files included."""
    # What the first model of its class imports is none of this.
    llama(is_small=True)
    torch.manual_seed(0)
    Path("/proc/self/clear_refs").write_text("5")
    before, start = memory("VmRSS"), time.perf_counter()
    with tierd.torch.init() if side == "init" else nullcontext():
        model = llama(is_small=is_quick)
    seconds, most = time.perf_counter() - start, memory("VmHWM")
    largest = max(sum(parameter.nbytes for parameter in module.parameters(recurse=False)) for module in model.modules())
    return {"seconds": seconds, "bytes": most - before, "largest": largest, "random": torch.rand(1).item()}


def memory(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{what}:"))


sys.exit(main())
