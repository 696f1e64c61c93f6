#!/usr/bin/env python3
"""Counts the functional cases that run against the stand-in for a GPU, as the build's tables have them. Nothing here is measured on a
GPU, or says anything of one.

usage: bench_standin [--quick] [--json FILE] [NAME...]
"""
import argparse
import json
import os
import subprocess

RESULT = "gpu_standin_tests"
LIMIT = 150
BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def uses_standin(test):
    standins = os.path.realpath(os.path.join(BUILD, "tests/lib/gpu"))
    folders = [*test["cmd"], *test["env"].get("LD_LIBRARY_PATH", "").split(":")]
    is_functional = any("/tests/functional/" in argument for argument in test["cmd"][:2])
    return is_functional and any(os.path.realpath(folder) == standins for folder in folders)


def cases(test):
    """A training of the matrix is a case, and so is any other test."""
    if "MATRIX_GPU" not in test["env"]:
        return 1
    count = [test["env"]["MATRIX"], "count", *test["cmd"][-1].split()]
    return int(subprocess.run(count, stdout=subprocess.PIPE, check=True).stdout)


parser = argparse.ArgumentParser(prog="bench_standin")
parser.add_argument("--quick", action="store_true")
parser.add_argument("--json")
parser.add_argument("names", nargs="*")
arguments = parser.parse_args()
results = []
if not arguments.names or RESULT in arguments.names:
    with open(os.path.join(BUILD, "meson-info/intro-tests.json"), encoding="utf-8") as file:
        counts = {test["name"]: cases(test) for test in json.load(file) if uses_standin(test)}
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    results = [{"name": RESULT, "value": sum(counts.values()), "unit": "cases", "bound": "least", "limit": LIMIT, "spread": None}]
if arguments.json:
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump(results, file)
