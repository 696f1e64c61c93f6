#!/usr/bin/env python3
"""Trains a policy by the rewards of what it writes, while another process samples from it: it follows the policy's job.

The reward is how often a wanted letter comes. In place of this small model, and of counting, are yours.

python rlhf_reader.py --steps 100
"""

from __future__ import annotations

import argparse
import multiprocessing
from multiprocessing.queues import Queue

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import tierd.torch as tierd
from tierd.daemon import find_or_start

LETTERS, LENGTH, SAMPLES = 26, 16, 64
WANTED = 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a policy by rewards, while another process samples from it.")
    parser.add_argument("--job", default="policy", help="its name; one that exists is gone on with (%(default)s)")
    parser.add_argument("--nvme", metavar="FOLDER:SIZE", help="where a private daemon, if one is started, keeps state")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="to take (%(default)s)")
    parser.add_argument("--width", type=int, default=64, metavar="N", help="(%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=5e-3, metavar="X", help="(%(default)s)")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS", help="(%(default)s)")
    return parser.parse_args()


class Policy(nn.Module):
    """Says which letter comes next, after those that are there. Letter 0 is the beginning."""

    def __init__(self, width: int):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, LETTERS)

    def forward(self, text: Tensor) -> Tensor:
        logits: Tensor = self.head(self.memory(self.letters(text))[0])
        return logits


@torch.no_grad()
def write(policy: nn.Module) -> Tensor:
    text = torch.zeros(SAMPLES, 1, dtype=torch.long)
    for _ in range(LENGTH):
        text = torch.cat([text, Categorical(logits=policy(text)[:, -1]).sample()[:, None]], dim=1)
    return text


def sample(socket: str, options: argparse.Namespace, samples: Queue[tuple[int, list[list[int]]]]) -> None:
    """The other process: it writes with the policy as it is, over and over."""
    torch.manual_seed(1)
    # Without memory of its own for first values: all of them come from the job.
    with torch.device("meta"):
        policy = Policy(options.width)
    with tierd.follow(policy, job=options.job, socket=socket, wait_s=60) as follower:
        while True:
            step = follower.refresh()
            samples.put((step, write(policy).tolist()))


def train(socket: str, options: argparse.Namespace, samples: Queue[tuple[int, list[list[int]]]]) -> None:
    torch.manual_seed(0)
    policy: nn.Module = Policy(options.width)
    # What the policy is to stay near to: a job of its own, which is never stepped.
    reference: nn.Module = Policy(options.width).requires_grad_(False)
    reference.load_state_dict(policy.state_dict())
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(policy.parameters(), lr=options.learning_rate)
    policy, optimizer = tierd.initialize(policy, optimizer, job=options.job, max_grad_norm=1.0, socket=socket)
    reference, _ = tierd.initialize(reference, job=f"{options.job}-reference", socket=socket)
    for i in range(1, options.steps + 1):
        step, letters = samples.get(timeout=300)
        text = torch.tensor(letters)
        reward = (text[:, 1:] == WANTED).float().mean(dim=1)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        ours, theirs = Categorical(logits=policy(text[:, :-1])), Categorical(logits=reference(text[:, :-1]))
        distance = torch.distributions.kl_divergence(ours, theirs).mean()
        loss = -(advantage[:, None] * ours.log_prob(text[:, 1:])).mean() + 0.01 * distance
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % options.log_every == 0:
            print(f"step {i}: reward {reward.mean():.3f}, samples of the job's step {step}", flush=True)
    tierd.close(reference)
    tierd.close(policy)


def main() -> None:
    options = arguments()
    socket = find_or_start(options.nvme)
    context = multiprocessing.get_context("spawn")
    samples = context.Queue(maxsize=1)
    sampler = context.Process(target=sample, args=(socket, options, samples), daemon=True)
    sampler.start()
    try:
        train(socket, options, samples)
    finally:
        sampler.terminate()


if __name__ == "__main__":
    main()
