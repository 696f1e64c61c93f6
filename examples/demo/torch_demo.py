"""The demo with PyTorch: a model that trains in half the memory that its state needs, beside plain PyTorch, and is killed."""
import json
import os
import signal
import statistics
import tempfile
import time

from memory import Watch, own_bytes
from process import Daemon, DemoError, Process

MIB = 1 << 20
STATE_BYTES = 16  # of each parameter: bf16 parameter and gradient, fp32 master, m and v
# Parameters, and steps that are shown.
MODELS = {"gpt2": (124_439_808, 12), "llama": (1_100_048_384, 6), "tiny": (182_016, 6)}
# Less than this the largest unit, its gradients and the buffers of reads and writes do not fit in.
LEAST_BUDGET = 64 * MIB


class Trainer(Process):
    def __init__(self, python, model, report, steps, environment=None, job=None):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_trainer.py")
        command = [python, program, model, report, str(steps)] + (["--job", job] if job else [])
        self.report = report
        super().__init__(command, environment=environment)

    def lines(self):
        try:
            with open(self.report, encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def follow(self, name, until):
        """Prints each step as it comes, until that one, or the end."""
        shown = len(self.lines())
        while True:
            is_over = self.process.poll() is not None
            lines = self.lines()
            for line in lines[shown:]:
                print(f"{name:8} step {line['step']:3}  loss {line['loss']:.4f}  {line['seconds']:6.2f} s", flush=True)
            shown = len(lines)
            if lines and lines[-1]["step"] >= until:
                return
            if is_over:
                raise DemoError(f"{self.name} ended with status {self.process.returncode}, see above")
            time.sleep(0.02)


def environment_of(build, socket, budget):
    return {**os.environ, "PYTHONPATH": os.path.join(build, "client/python"), "TIERD_SOCKET": socket,
            "DEMO_HOST_BUDGET": str(budget), "HF_HUB_OFFLINE": "1"}


def train_plain(python, model, steps, folder):
    print("\n== In plain PyTorch", flush=True)
    with Trainer(python, model, os.path.join(folder, "plain.json"), steps) as trainer, \
            Watch([trainer.pid], own_bytes) as watch:
        trainer.follow("PyTorch", steps)
        trainer.check()
        return trainer.lines(), watch.peak


def train_in_tierd(arguments, python, model, steps, folder):
    """Half of the steps, kill -9, and the others."""
    parameters = MODELS[model][0]
    budget = max(parameters * STATE_BYTES // 2, LEAST_BUDGET)
    report = os.path.join(folder, "tierd.json")
    print(f"\n== Through tierd, parameters and optimizer state on NVMe, {budget / 1e9:.2f} GB of memory for the daemon", flush=True)
    with Daemon(arguments.build, folder, budget, 2 * STATE_BYTES * parameters + 256 * MIB) as daemon, \
            Watch([daemon.pid]) as daemon_watch:
        environment = environment_of(arguments.build, daemon.socket, budget * 15 // 16)
        with Trainer(python, model, report, steps, environment, "demo") as trainer, \
                Watch([trainer.pid], own_bytes) as first_watch:
            trainer.follow("tierd", steps // 2)
            trainer.signal(signal.SIGKILL)
        killed = time.monotonic()
        before = len(trainer.lines())
        print("killed (kill -9), and started again", flush=True)
        with Trainer(python, model, report, steps, environment, "demo") as trainer, \
                Watch([trainer.pid], own_bytes) as second_watch:
            trainer.follow("tierd", steps // 2 + 1)
            back = time.monotonic() - killed
            trainer.follow("tierd", steps)
            trainer.check()
            lines = trainer.lines()
    return {"lines": lines, "daemon": daemon_watch.peak, "trainer": max(first_watch.peak, second_watch.peak), "budget": budget,
            "back": back, "imported": lines[before]["imported"], "went_on": lines[before]["step"]}


# ---- The table ------------------------------------------------------------------------------------------------


def results(model, tierd, plain):
    """plain: lines and memory, or None."""
    table = {
        "parameters": tierd["lines"][0]["parameters"],
        "model_state_bytes": MODELS[model][0] * STATE_BYTES,
        "daemon_budget_bytes": tierd["budget"],
        "daemon_peak_bytes": tierd["daemon"],
        "trainer_peak_bytes": tierd["trainer"],
        "step_seconds": step_seconds(tierd["lines"]),
        "loss_first": tierd["lines"][0]["loss"],
        "loss_last": tierd["lines"][-1]["loss"],
        "restart_seconds": tierd["back"],
        "import_seconds": tierd["imported"],
        "went_on_at_step": tierd["went_on"],
    }
    if plain:
        lines, peak = plain
        table |= {"plain_peak_bytes": peak, "plain_step_seconds": step_seconds(lines), "plain_loss_last": lines[-1]["loss"]}
    return table


def step_seconds(lines):
    """The first step after a start has what happens once."""
    return statistics.median(line["seconds"] for line in lines[1:])


def mib(value):
    return f"{value / MIB:,.0f} MiB"


def print_table(table):
    has_plain = "plain_peak_bytes" in table
    rows = [
        ("", "tierd", "plain PyTorch" if has_plain else ""),
        ("time per step", f"{table['step_seconds']:.2f} s", f"{table['plain_step_seconds']:.2f} s" if has_plain else ""),
        ("last loss", f"{table['loss_last']:.4f}", f"{table['plain_loss_last']:.4f}" if has_plain else ""),
        ("trainer's own memory", mib(table["trainer_peak_bytes"]), mib(table["plain_peak_bytes"]) if has_plain else ""),
        ("daemon's memory", mib(table["daemon_peak_bytes"]), ""),
    ]
    print(f"\n{table['parameters']:,} parameters, {mib(table['model_state_bytes'])} of state; "
          f"the daemon may have {mib(table['daemon_budget_bytes'])}")
    print("\n".join(f"{name:22} {ours:>14} {theirs:>14}".rstrip() for name, ours, theirs in rows))
    print(f"\nKilled in the middle, it was back at step {table['went_on_at_step']} {table['restart_seconds']:.1f} s later, of which "
          f"{table['import_seconds']:.1f} s were for imports and one step took {table['step_seconds']:.1f} s")


def run(arguments):
    python = os.environ.get("TIERD_PYTHON_NEWEST")
    if not python:
        raise DemoError("there is no PyTorch: run ./run demo --torch, which fetches it")
    model = "tiny" if arguments.quick else "llama" if arguments.large else "gpt2"
    parameters, steps = MODELS[model]
    # Beside the build: a disk that has O_DIRECT, which /tmp need not be.
    with tempfile.TemporaryDirectory(prefix="demo-", dir=arguments.build) as folder:
        start = time.monotonic()
        plain = None
        if model == "llama":
            print(f"Plain PyTorch would take {parameters * STATE_BYTES / 1e9:.1f} GB for this model, and is left out")
        else:
            plain = train_plain(python, model, steps, folder)
        table = results(model, train_in_tierd(arguments, python, model, steps, folder), plain)
    print_table(table)
    print(f"\n{time.monotonic() - start:.0f} s in all")
    if arguments.json:
        with arguments.json as file:
            json.dump(table, file, indent=2)
            file.write("\n")
    return 0
