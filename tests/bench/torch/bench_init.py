"""What making a model in tierd.torch.init() costs, beside plain construction: bench_init.py TIERD [--json FILE] [--quick]
[NAME…]. run_bench runs it, in an environment that ./run makes. Each construction is a process of its own."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

import tierd.torch

PAIRS = 5
LIMITS = {"torch_init_ratio": 1.3, "torch_init_memory": 2.0}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("tierd")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--side", choices=["plain", "init"], help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_intermixed_args()
    if arguments.side:
        print(json.dumps(construct(arguments.side, arguments.quick)))
        return 0
    wanted = [name for name in LIMITS if not arguments.names or name in arguments.names]
    results = measured(arguments.quick) if wanted else []
    if arguments.json:
        arguments.json.write_text(json.dumps([result for result in results if result["name"] in wanted]))
    return 0


def measured(is_quick: bool) -> list[dict[str, Any]]:
    """Constructions in turns, by pairs, of which each second one begins with the other side."""
    ratios, shares, plain_times = [], [], []
    for pair in range(1 if is_quick else PAIRS):
        sides = ["init", "plain"] if pair % 2 else ["plain", "init"]
        found = {side: run(side, is_quick) for side in sides}
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


def run(side: str, is_quick: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "none", "--side", side, *(["--quick"] if is_quick else [])]
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


def llama(*, is_small: bool) -> nn.Module:
    sizes: dict[str, Any] = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, vocab_size=256)
    if not is_small:
        sizes = dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, vocab_size=32000)
    model: nn.Module = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(num_attention_heads=32, num_key_value_heads=4, **sizes)
    )
    return model


def memory(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{what}:"))


sys.exit(main())
