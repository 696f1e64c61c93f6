"""Trains a language model of transformers on text, bytes as tokens, in bf16 with fp32 masters: through tierd, or in plain
PyTorch. The demo runs it, and kills it.

torch_trainer.py gpt2|llama|tiny REPORT STEPS [--job JOB]
"""
import argparse
import json
import os
import time
from contextlib import nullcontext
from pathlib import Path

STARTED = time.monotonic()

import torch  # noqa: E402
import transformers  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RATE = 3e-4
# Sizes of a step: sequences, and bytes of each.
SHAPES = {"gpt2": (1, 256), "llama": (1, 512), "tiny": (2, 32)}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("report", type=Path, help="gets a line of JSON for each step")
    parser.add_argument("steps", type=int)
    parser.add_argument("--job", help="in tierd, of TIERD_SOCKET; without it: plain PyTorch")
    return parser.parse_args()


def make_model(name):
    if name == "llama":
        config = transformers.LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                                          num_key_value_heads=4, vocab_size=32000, tie_word_embeddings=False, use_cache=False)
    else:
        sizes = {} if name == "gpt2" else {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 256, "bos_token_id": 0, "eos_token_id": 0}
        config = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    if name == "llama":
        model.gradient_checkpointing_enable()
    return model.train()


def batches(name):
    """The same text in the same order, whoever trains."""
    sequences, length = SHAPES[name]
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in files)), dtype=torch.uint8)
    text = text[: len(text) // length * length].view(-1, length).long()
    return torch.utils.data.DataLoader(text, sequences, shuffle=True, drop_last=True)


class Masters:
    """What plain PyTorch needs for the same: AdamW of fp32 copies."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.masters = [torch.nn.Parameter(parameter.detach().float()) for parameter in self.parameters]
        self.optimizer = torch.optim.AdamW(self.masters, RATE, fused=True)

    def step(self):
        for parameter, master in zip(self.parameters, self.masters):
            master.grad, parameter.grad = parameter.grad.float(), None
        norm = torch.sqrt(sum(master.grad.double().square().sum() for master in self.masters))
        if norm > 1:
            torch._foreach_mul_([master.grad for master in self.masters], float(1 / norm))
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.masters)

    def zero_grad(self):
        self.optimizer.zero_grad()


def main():
    options = arguments()
    torch.manual_seed(0)
    imported = time.monotonic() - STARTED
    if options.job:
        import tierd.torch as tierd
    with tierd.init() if options.job and hasattr(tierd, "init") else nullcontext():
        model = make_model(options.model)
    loader = batches(options.model)
    if options.job:
        optimizer = torch.optim.AdamW(model.parameters(), RATE)
        tierd.initialize(model, optimizer, job=options.job, max_grad_norm=1.0, host_budget=int(os.environ["DEMO_HOST_BUDGET"]))
        loader = tierd.resumable(loader)
    else:
        optimizer = Masters(model.parameters())
    with options.report.open("a") as report:
        start = time.monotonic()
        for step, batch in enumerate(loader, tierd.job_of(model).core.state()["step"] + 1 if options.job else 1):
            logits = model(batch).logits
            loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            end = time.monotonic()
            line = {"step": step, "loss": loss.item(), "seconds": end - start, "imported": imported,
                    "parameters": sum(parameter.numel() for parameter in model.parameters())}
            report.write(json.dumps(line) + "\n")
            report.flush()
            start = end
            if step == options.steps:
                break
    if options.job:
        tierd.close(model)


main()
