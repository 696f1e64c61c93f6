#!/usr/bin/env python3
"""DeepSpeed at work, for comparison: does a run each time it is told to, and says how fast that was.

usage: peer.py adam ELEMENTS THREADS          its optimizer for processors, over arrays in memory
       peer.py step LAYERS ELEMENTS THREADS FOLDER    a step of ZeRO-3, whose optimizer state lies in the folder
       peer.py train LAYERS WIDTH WORDS THREADS FOLDER     the same of a GPT-2 with so many, with forward and backward pass

The first line that it writes is "ready VERSIONS", or "missing WHAT AND WHENCE". Then it reads lines "WHAT SECONDS", and answers
each with a rate in elements a second.
"""
import ctypes
import importlib.util
import logging
import mmap
import os
import shutil
import sys
import sysconfig
import time

# Found by trying, on two processors and one disk: larger and smaller groups, fewer and more transfers at once, and one thread or
# four were slower, with the defaults of "aio" (8 at once, one thread) by half.
GROUP_ELEMENTS = 4 << 20
# A group is read, one is updated and one is written, each with master, two moments and gradient. The default, 4, is not enough.
BUFFERS = 3 * 4
AIO = {"block_size": 1 << 20, "queue_depth": 32, "intra_op_parallelism": 2, "single_submit": False, "overlap_events": True}
LOCKED_BYTES = 1 << 30
BEGUN = "TIERD_BENCH_PEER_HAS_BEGUN"
ADAMW = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


def can_lock():
    """As much as DeepSpeed's buffers are, and more: where it may not lock them it ends."""
    area = mmap.mmap(-1, LOCKED_BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(LOCKED_BYTES)) == 0


def begin_again(threads):
    """With the environment that libraries look at when they are loaded."""
    if BEGUN in os.environ:
        return
    os.environ.update({BEGUN: "yes"}, OMP_NUM_THREADS=threads, DS_ACCELERATOR="cpu", DS_PIN_MEMORY_BACKEND="native",
                      RANK="0", LOCAL_RANK="0", WORLD_SIZE="1",
                      # Huge pages, as the daemon's memory has: for what glibc allocates, and for torch's tensors.
                      GLIBC_TUNABLES="glibc.malloc.hugetlb=1", THP_MEM_ALLOC_ENABLE="1",
                      # Where pip has put ninja.
                      PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""))
    os.execv(sys.executable, [sys.executable] + sys.argv)


def missing(task):
    """What DeepSpeed or its operators lack, and where to get it; None if nothing."""
    needed = ["torch", "deepspeed"] + (["transformers"] if task == "train" else [])
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent:
        return f"{sys.executable} has no {' and no '.join(absent)}: ./run bench --peers fetches what is missing"
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        return "DeepSpeed compiles its operators, and Python.h is not there: apt-get install python3-dev"
    if not shutil.which("c++"):
        return "DeepSpeed compiles its operators, and c++ is not there: apt-get install g++"
    if task in ("step", "train"):
        if not can_lock():
            return f"DeepSpeed locks its buffers, and {LOCKED_BYTES >> 20} MiB may not be locked here: ulimit -l unlimited, or as root"
        from deepspeed.ops.op_builder import AsyncIOBuilder
        if not AsyncIOBuilder().is_compatible(verbose=False):
            return "DeepSpeed cannot write asynchronously: apt-get install libaio-dev"
    return None


class Adam:
    """DeepSpeedCPUAdam. "fp32": parameters, gradients and moments in fp32. "master": the same, and then parameters in bf16 are
    copied from it, as ZeRO trains a model in bf16. "bf16": parameters and gradients in bf16, without a master, and moments in fp32."""

    def __init__(self, elements):
        import torch
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        self.elements = elements
        # Of the size that they have in training, and never denormal.
        gradient = 1e-6 * (torch.arange(elements) * 2654435761 // (1 << 20) % 4096 - 2048 + 0.5)
        self.optimizers, self.parameters = {}, {}
        for name in ("float32", "bfloat16"):
            number = getattr(torch, name)
            parameter = self.parameters[name] = torch.nn.Parameter((1000 * gradient).to(number))
            parameter.grad = gradient.to(number)
            self.optimizers[name] = DeepSpeedCPUAdam([parameter], adamw_mode=True, **ADAMW)
        self.half = torch.zeros(elements, dtype=torch.bfloat16)
        for what in ("master", "bf16"):
            self.run(what, 0)

    def update(self, what):
        self.optimizers["bfloat16" if what == "bf16" else "float32"].step()
        if what == "master":
            self.half.copy_(self.parameters["float32"].data)

    def run(self, what, seconds):
        start, count = time.monotonic(), 0
        while count == 0 or time.monotonic() - start < seconds:
            self.update(what)
            count += 1
        return count * self.elements / (time.monotonic() - start)


def make_model(layers, elements):
    """Whose gradients cost next to nothing: a constant, of every element."""
    import torch

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(elements).uniform_(-1, 1))

        def forward(self, sum_):
            return sum_ + self.weight.sum() * 0.001

    return torch.nn.Sequential(*(Layer() for _ in range(layers)))


def make_engine(model, folder):
    """ZeRO-3: parameters in bf16 and in memory, fp32 master and moments in files of the folder, into which the gradients go, too."""
    import deepspeed
    import torch
    torch.distributed.init_process_group("gloo", f"file://{folder}/rendezvous", rank=0, world_size=1)
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 1,
        "steps_per_print": 1 << 30,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": ADAMW},
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": GROUP_ELEMENTS,
            "offload_optimizer": {"device": "nvme", "nvme_path": folder, "pipeline_read": True, "pipeline_write": True,
                                  "buffer_count": BUFFERS},
        },
        "aio": AIO,
    })[0]


def check_that_it_trains(work):
    """The first step makes the moments."""
    import torch
    first = next(work.engine.module.parameters())
    # As the next forward pass will see it.
    before = first.ds_tensor.detach().clone()
    for _ in range(2):
        work.run("warm", 0)
    assert not torch.equal(before, first.ds_tensor), "DeepSpeed's steps change nothing"


class Step:
    """A run is one step, from the end of the backward pass until DeepSpeed has written its state; nobody flushes it."""

    def __init__(self, layers, elements, folder):
        import torch
        self.elements = layers * elements
        self.nothing = torch.zeros((), dtype=torch.bfloat16)
        self.engine = make_engine(make_model(layers, elements), folder)
        check_that_it_trains(self)

    def run(self, _what, _seconds):
        self.engine.backward(self.engine(self.nothing))
        start = time.monotonic()
        self.engine.step()
        return self.elements / (time.monotonic() - start)


class Train:
    """Steps of a GPT-2, with all that is in them; the next one begins when DeepSpeed has written its state, which nobody flushes."""

    def __init__(self, layers, width, words, folder):
        import torch
        import transformers
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_layer=layers, n_embd=width, n_head=width // 64, vocab_size=words, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            bos_token_id=0, eos_token_id=0, use_cache=False))
        self.elements = sum(parameter.numel() for parameter in model.parameters())
        # As tests/bench/torch/bench_deepspeed.py has it.
        self.text = torch.randint(0, 256, (1, 256))
        self.engine = make_engine(model.train(), folder)
        check_that_it_trains(self)

    def run(self, _what, seconds):
        start, count = time.monotonic(), 0
        while count == 0 or time.monotonic() - start < seconds:
            self.engine.backward(self.engine(input_ids=self.text, labels=self.text).loss)
            self.engine.step()
            count += 1
        return count * self.elements / (time.monotonic() - start)


def versions():
    import deepspeed
    import torch
    return f"DeepSpeed {deepspeed.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads"


def main():
    task, words = sys.argv[1], sys.argv[2:]
    numbers, folder = [int(word) for word in words if word.isdigit()], [word for word in words if not word.isdigit()]
    begin_again(str(numbers[-1]))
    # The libraries write a lot to standard output: let it be read by people.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.disable(logging.WARNING)

    lack = missing(task)
    if lack:
        print("missing", lack, file=answers, flush=True)
        return
    work = {"adam": Adam, "step": Step, "train": Train}[task](*numbers[:-1], *folder)
    print("ready", versions(), file=answers, flush=True)
    for line in sys.stdin:
        what, seconds = line.split()
        print(work.run(what, float(seconds)), file=answers, flush=True)


main()
