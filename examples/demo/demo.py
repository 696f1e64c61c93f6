#!/usr/bin/env python3
"""Trains the example GPT with state that does not fit the memory it was given, and shows what that took.

usage: ./run demo [--torch] [--large] [--int8] [--json FILE] [--quick]
"""
import argparse
import filecmp
import json
import os
import signal
import sys
import tempfile
import time

import torch_demo
from limit import Limit
from memory import Watch
from process import Daemon, DemoError, Process

MIB = 1 << 20
VOCABULARY = 256

# Per parameter: bf16 parameter and gradient, fp32 master, m and v. A gradient that is summed takes two bytes more, and a
# master that is split two less.
STATE_BYTES = 16
STATE_BYTES_INT8 = 8 + 2 * 260 / 256  # 256 moments in 8 bits have a scale of 4 bytes

# The training that is shown, and what --quick makes of it.
MAIN = {"ranks": 4, "layers": 16, "width": 384, "heads": 6, "context": 128, "batch": 1, "micro-batches": 1, "steps": 100,
        "warmup": 10, "log-every": 5}
QUICK = {**MAIN, "steps": 3, "warmup": 1, "log-every": 1}
# A billion parameters. Few bytes are enough to see all of it move.
LARGE = {"ranks": 2, "layers": 20, "width": 2048, "heads": 16, "context": 64, "batch": 1, "micro-batches": 1, "steps": 5,
         "warmup": 2, "learning-rate": "2e-5", "log-every": 1}
LARGE_QUICK = {**LARGE, "steps": 2}
LARGE_BUDGET = 6 * 10**9
# Small enough to be trained twice, with more than one micro-batch and more units than there is memory for.
SMALL = {"ranks": 4, "layers": 6, "width": 256, "heads": 4, "context": 64, "batch": 1, "micro-batches": 2, "steps": 6, "warmup": 2,
         "log-every": 2}
SMALL_QUICK = {**SMALL, "steps": 3}
SMALL_BUDGET = 60 * MIB
SAMPLE_BYTES = 240

# Half of the state is what the daemon and the trainers may use together; this much of it is left to the trainers'
# activations and to both programs themselves.
BUDGET_FRACTION = 0.5
OUTSIDE_BYTES_PER_RANK = 8 * MIB
OUTSIDE_BYTES_PER_LARGE_RANK = 100 * MIB
OUTSIDE_BYTES_DAEMON = 12 * MIB
# Left to the daemon by its one job: a rank that runs ahead of the others has its gradients put aside there, beyond the
# job's plan, as often as the machine is busy elsewhere.
ASIDE_BYTES = 12 * MIB

# The large one's sums of gradients alone are 4 GB; text of it would say nothing.
TRAINING_FLAGS = {False: ["--sample-bytes", str(SAMPLE_BYTES), "--temperature", "0.6"],
                  True: ["--gradients-on", "nvme", "--sample-bytes", "0"]}


def read_arguments():
    parser = argparse.ArgumentParser(prog="./run demo", usage="./run demo [--torch] [--large] [--int8] [--json FILE] [--quick]")
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    # Opened now: minutes later it would be too late to say that it cannot be.
    parser.add_argument("--json", metavar="FILE", type=argparse.FileType("w", encoding="utf-8"),
                        help="write the table there")
    parser.add_argument("--quick", action="store_true", help="a few steps of a small model, or of the large one")
    parser.add_argument("--large", action="store_true",
                        help="a billion parameters in 6 GB of host memory, which a cgroup enforces where one can be made; "
                             "takes 35 GB of disk and some minutes")
    parser.add_argument("--int8", action="store_true", help="AdamW's moments in 8 bits instead of fp32")
    parser.add_argument("--torch", action="store_true",
                        help="a model of PyTorch instead, beside plain PyTorch, and killed in the middle: GPT-2 of 124 million "
                             "parameters, or with --large a Llama of 1.1 billion")
    arguments = parser.parse_args()
    if arguments.torch and arguments.int8:
        parser.error("--int8 is for the demo without --torch")
    return arguments


def parameter_count(shape):
    width = shape["width"]
    layer = 12 * width * width + 13 * width
    return (VOCABULARY + shape["context"]) * width + shape["layers"] * layer + 2 * width


# ---- Training -------------------------------------------------------------------------------------------------


class Trainer(Process):
    def __init__(self, arguments, shape, report, extra, limit=None):
        self.report = report
        command = [os.path.join(arguments.build, "examples/gpt/gpt"), "--format", "bf16",
                   "--moments", "int8" if arguments.int8 else "fp32", "--json", report]
        for name, value in shape.items():
            command += [f"--{name}", str(value)]
        super().__init__(command + extra, limit)

    def read_report(self):
        self.check()
        with open(self.report, encoding="utf-8") as file:
            return json.load(file)


def in_tierd(daemon, job, host_budget):
    return ["--socket", daemon.socket, "--job", job, "--stage", "3", "--parameters-on", "nvme", "--optimizer-on", "nvme",
            "--host-budget", str(host_budget)]


def budgets(shape, is_large):
    """What daemon and trainers may use together, and what of it the daemon plans with."""
    together = LARGE_BUDGET if is_large else int(parameter_count(shape) * STATE_BYTES * BUDGET_FRACTION)
    per_rank = OUTSIDE_BYTES_PER_LARGE_RANK if is_large else OUTSIDE_BYTES_PER_RANK
    return together, together - shape["ranks"] * per_rank - OUTSIDE_BYTES_DAEMON


def nvme_capacity(shape):
    """Copy on write needs twice the state, and sums that are spilled their place; extents and packs round it up."""
    return 2 * STATE_BYTES * parameter_count(shape) + 256 * MIB


def equals_unpartitioned(shape, arguments, folder):
    dumps = [os.path.join(folder, name) for name in ("tierd.dump", "plain.dump")]
    print(f"== The same training of {parameter_count(shape):,} parameters twice: through tierd, and unpartitioned "
          "in plain memory", flush=True)
    with Daemon(arguments.build, os.path.join(folder, "small"), SMALL_BUDGET + ASIDE_BYTES, nvme_capacity(shape)) as daemon:
        extra = in_tierd(daemon, "equality", SMALL_BUDGET) + ["--dump", dumps[0]]
        with Trainer(arguments, shape, os.path.join(folder, "tierd.json"), extra) as trainer:
            trainer.check()
    extra = ["--no-tierd", "--dump", dumps[1]]
    with Trainer(arguments, shape, os.path.join(folder, "plain.json"), extra) as trainer:
        trainer.check()
    return os.path.getsize(dumps[0]) > 0 and filecmp.cmp(*dumps, shallow=False)


def train(arguments, folder):
    """The gpt's report, with the host memory that the daemon and its trainers took."""
    if arguments.large:
        shape = LARGE_QUICK if arguments.quick else LARGE
    else:
        shape = QUICK if arguments.quick else MAIN
    together, host_budget = budgets(shape, arguments.large)
    if host_budget <= 0:
        raise DemoError(f"a budget of {together / MIB:.0f} MiB leaves nothing for the daemon")
    limit = Limit(together) if arguments.large else None
    print(f"\n== {parameter_count(shape):,} parameters on {shape['ranks']} ranks, stage 3, parameters and optimizer state on "
          f"NVMe, {together / 1e9:.3g} GB of host memory" + (f", {limit.describe()}" if limit else ""), flush=True)
    try:
        with Daemon(arguments.build, os.path.join(folder, "main"), host_budget, nvme_capacity(shape), limit) as daemon:
            extra = in_tierd(daemon, "demo", host_budget - ASIDE_BYTES) + TRAINING_FLAGS[arguments.large]
            with Trainer(arguments, shape, os.path.join(folder, "main.json"), extra, limit) as trainer, \
                    Watch([daemon.pid, trainer.pid]) as watch:
                report = trainer.read_report()
    finally:
        if limit:
            limit.remove()
    report["host_budget"] = together
    report["ranks"] = shape["ranks"]
    report["limit"] = limit.describe() if limit else None
    report["peak_host"] = watch.peak
    report["samples"] = watch.samples
    return report


# ---- The table ------------------------------------------------------------------------------------------------


def results(report, compared, is_equal, is_int8):
    parameters, statistics = report["parameters"], report["statistics"]
    steps = statistics["job_steps"] * parameters
    return {
        "parameters": parameters,
        "model_state_bytes": int((STATE_BYTES_INT8 if is_int8 else STATE_BYTES) * parameters),
        "moments": "int8" if is_int8 else "fp32",
        "enforced": report["limit"],
        "host_budget_bytes": report["host_budget"],
        "peak_host_bytes": report["peak_host"],
        "read_bytes_per_parameter": (statistics["job_gather_read_bytes"] + statistics["job_update_read_bytes"]) / steps,
        "written_bytes_per_parameter": statistics["job_update_written_bytes"] / steps,
        "step_seconds": report["step_seconds"],
        "loss_first": report["loss_first"],
        "loss_last": report["loss_last"],
        "compared_parameters": compared,
        "equals_unpartitioned": is_equal,
    }


def mib(value):
    return f"{value / MIB:.1f} MiB"


def print_table(report, table):
    statistics = report["statistics"]
    steps = statistics["job_steps"] * table["parameters"]
    logical = sum(statistics[f"logical_{kind}_bytes"] for kind in ("parameter", "gradient", "optimizer"))
    is_within = table["peak_host_bytes"] <= table["host_budget_bytes"]
    rows = [
        ("parameters", f"{table['parameters']:,} in bf16, norms in fp32; moments in {table['moments']}"),
        ("model state", mib(table["model_state_bytes"])),
        ("logical memory per rank", f"{mib(logical)}, by the formula {mib(table['model_state_bytes'] / report['ranks'])}"),
        ("host budget", f"{mib(table['host_budget_bytes'])}, for daemon and trainers" +
                        (f"; {table['enforced']}" if table["enforced"] else "")),
        ("peak host memory", f"{mib(table['peak_host_bytes'])}, {'within' if is_within else 'ABOVE'} the budget"),
        ("read", f"{table['read_bytes_per_parameter']:.1f} bytes per parameter and step, of which "
                 f"{statistics['job_update_read_bytes'] / steps:.1f} by updates"),
        ("written", f"{table['written_bytes_per_parameter']:.1f} bytes per parameter and step"),
        ("time per step", f"{table['step_seconds']:.3f} s"),
        ("  waiting for gathers", f"{report['gather_seconds']:.3f} s"),
        ("  computing", f"{report['compute_seconds']:.3f} s"),
        ("  pushing gradients", f"{report['push_seconds']:.3f} s"),
        ("  waiting for steps", f"{report['update_seconds']:.3f} s"),
        ("updating, in the daemon", f"{statistics['job_step_ns'] / statistics['job_steps'] / 1e9:.3f} s per step, "
                                    "which the next gathers wait for"),
        ("loss", f"{table['loss_first']:.3f} to {table['loss_last']:.3f} (nats per byte) in {report['steps']} steps"),
        ("equals unpartitioned", ("yes" if table["equals_unpartitioned"] else "NO") +
         f", of the smaller model of {table['compared_parameters']:,} parameters, trained twice: parameters, master weights and "
         "moments, bit for bit"),
    ]
    print("\n" + "\n".join(f"{name:24}  {value}" for name, value in rows))


def run(arguments):
    # Beside the build: a disk that has O_DIRECT, which /tmp need not be.
    with tempfile.TemporaryDirectory(prefix="demo-", dir=arguments.build) as folder:
        start = time.monotonic()
        small = SMALL_QUICK if arguments.quick else SMALL
        is_equal = equals_unpartitioned(small, arguments, folder)
        report = train(arguments, folder)
    table = results(report, parameter_count(small), is_equal, arguments.int8)
    print_table(report, table)
    print(f"\n{time.monotonic() - start:.0f} s in all")
    if arguments.json:
        with arguments.json as file:
            json.dump(table, file, indent=2)
            file.write("\n")
    return 0 if is_equal else 1


def main():
    arguments = read_arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + number))
    try:
        return torch_demo.run(arguments) if arguments.torch else run(arguments)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130


sys.exit(main())
