"""Daemons that die while they write what a job keeps in memory between two commits: kept_kills.py PROGRAM [MOMENTS STAGE FAULT PLACE STRIDE]

Without more each format and stage, with $TIERD_KILLS_SEEDS lives, or one. A failure says what repeats it.
"""
import itertools
import os
import random
import re
import subprocess
import sys

from kills import OUTPUT, SCRATCH, check_log, content, forget, train_through

PROGRAM = sys.argv[1]
SEEDS = int(os.environ.get("TIERD_KILLS_SEEDS", "1"))
STEPS, COMMIT_STEPS = 6, 2
# The first writes of a daemon make the job, or open it; those of a commit, by format of the moments, are some ten times as many as
# the next one lives longer.
FIRST, STRIDES = 28, {"fp32": 4, "bf16": 3, "int8": 2}
LOG, EXPECTED = f"{SCRATCH}/log", f"{SCRATCH}/expected"


def train(mode, moments, stage, faults):
    """How many daemons have died."""
    environment = {**os.environ, "TIERD_RECONNECT_MS": "60000"}
    command = [PROGRAM, mode, moments, stage, EXPECTED]
    with open(LOG, "w", encoding="utf-8") as log, open(OUTPUT, "w", encoding="utf-8") as output:
        return train_through(faults, lambda: subprocess.Popen(command, env=environment, stdout=output, stderr=output), log)


def deaths(fault, place, stride, in_commits):
    """Each daemon lives a little longer than the one before. Notes of each that has died whether its commit was not over."""
    for end in itertools.count(place, stride):
        before = len(content(LOG))
        yield f"{fault}:{end}"
        said = re.findall(rb": step (\d+) is (applied|durable)", content(LOG)[before:])
        in_commits.append(bool(said) and int(said[-1][0]) % COMMIT_STEPS == 0 and said[-1][1] == b"applied")


def live(moments, stage, fault, place, stride):
    """How many daemons have died in commits."""
    in_commits = []
    try:
        count = train("train", moments, stage, deaths(fault, int(place), int(stride), in_commits))
        assert count >= 3, f"only {count} daemons have died"
        assert check_log(LOG) == STEPS, "the last step is not durable"
        forget()
    except AssertionError as problem:
        raise AssertionError(f"{moments} {stage} {fault} {place} {stride}: {problem}") from problem
    return sum(in_commits)


def main():
    if len(sys.argv) > 2:
        train("expect", *sys.argv[2:4], itertools.repeat(None))
        live(*sys.argv[2:])
        return
    for moments, stage in itertools.product(STRIDES, ("3", "1")):
        train("expect", moments, stage, itertools.repeat(None))
        chance, count = random.Random(moments + stage), 0
        for _ in range(SEEDS):
            fault = chance.choice(("kill:write", "kill:write", "kill-after:write"))
            count += live(moments, stage, fault, FIRST + chance.randrange(4), STRIDES[moments] + chance.randrange(3))
        assert count > 0, f"{moments} {stage}: no daemon has died in a commit"
        print(f"{moments}, stage {stage}: {count} daemons have died in commits", flush=True)


main()
