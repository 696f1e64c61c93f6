#!/usr/bin/env python3
"""What train_gpt2.c reads, without a network: inputs.py TEXT…

Writes gpt2_124M.bin, GPT-2 of 124 million parameters with random values as GPT-2 begins with, and data/, whose tokens are the bytes of
the texts. Needs NumPy.
"""

import os
import sys

import numpy as np

LAYERS, WIDTH, VOCABULARY, POSITIONS, HEADS = 12, 768, 50257, 1024, 12
VALIDATION_TOKENS = 20000

random = np.random.default_rng(42)


def normal(count: int, deviation: float = 0.02) -> np.ndarray:
    return random.standard_normal(count, dtype=np.float32) * np.float32(deviation)


def zeros(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


def ones(count: int) -> np.ndarray:
    return np.ones(count, np.float32)


def write_checkpoint() -> None:
    residual = 0.02 / (2 * LAYERS) ** 0.5
    square = LAYERS * WIDTH * WIDTH
    each = LAYERS * WIDTH
    with open("gpt2_124M.bin", "wb") as file:
        header = np.zeros(256, np.int32)
        header[:7] = 20240326, 1, POSITIONS, VOCABULARY, LAYERS, HEADS, WIDTH
        file.write(header.tobytes())
        for values in (
            [normal(VOCABULARY * WIDTH), normal(POSITIONS * WIDTH), ones(each), zeros(each)]
            + [normal(3 * square), zeros(3 * each), normal(square, residual), zeros(each)]
            + [ones(each), zeros(each), normal(4 * square), zeros(4 * each)]
            + [normal(4 * square, residual), zeros(each), ones(WIDTH), zeros(WIDTH)]
        ):
            file.write(values.tobytes())


def write_tokens(paths: list[str]) -> None:
    tokens = np.concatenate([np.fromfile(path, np.uint8) for path in paths]).astype(np.int32)
    if len(tokens) < 2 * VALIDATION_TOKENS:
        sys.exit(f"inputs.py: these texts have {len(tokens)} bytes, and at least {2 * VALIDATION_TOKENS} are needed")
    os.makedirs("data", exist_ok=True)
    tokens[:-VALIDATION_TOKENS].tofile("data/tiny_shakespeare_train.bin")
    tokens[-VALIDATION_TOKENS:].tofile("data/tiny_shakespeare_val.bin")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    write_tokens(sys.argv[1:])
    write_checkpoint()
