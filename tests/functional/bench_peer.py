#!/usr/bin/env python3
"""What compares with DeepSpeed: skipped where that is not, and an error, not a number, where it does not do what it should. Here a
program of a few lines is in its place.

bench_peer.py BENCH_KERNELS"""
import json
import os
import subprocess
import sys
import tempfile

from waiting import wait_until

BENCH = sys.argv[1]
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench")
NAME = "adam_vs_deepspeed"
# Runs as Python would, and says what $FAKE does, first and later; notes what it was asked for. At $FAST it is fast.
FAKE = """#!{python}
import os, subprocess, sys
child = subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(os.path.basename(sys.argv[1]), *sys.argv[2:], child.pid, file=open(os.environ["NOTES"], "w"))
first, later = os.environ["FAKE"].split("|")
print(first, flush=True)
for line in sys.stdin:
    print(line.strip(), file=open(os.environ["NOTES"], "a"))
    if later == "end":
        break
    print(later if line.split()[0] != os.environ["FAST"] else 1e6 * float(later), flush=True)
"""


class Place:
    def __init__(self, folder):
        self.folder = folder
        self.fake, self.notes, self.figures = (os.path.join(folder, name) for name in ("fake", "notes", "figures"))
        with open(self.fake, "w", encoding="utf-8") as file:
            file.write(FAKE.format(python=sys.executable))
        os.chmod(self.fake, 0o755)
        os.makedirs(os.path.join(folder, "tests/bench"))
        os.symlink(BENCH, os.path.join(folder, "tests/bench/bench_kernels"))

    def run(self, command, status, python=None, fake="", fast="", name=NAME):
        environment = {**os.environ, "TIERD_BENCH_PYTHON": python or self.fake, "FAKE": fake, "NOTES": self.notes, "FAST": fast}
        done = subprocess.run([*command, "--quick", "--json", self.figures, name], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
        assert done.returncode == status, (done.returncode, status, done.stdout)
        return done.stdout

    def bench(self, *arguments, **more):
        return self.run([BENCH], *arguments, **more)

    def all_benches(self, *arguments, **more):
        return self.run([sys.executable, os.path.join(FOLDER, "run_bench"), "--build", self.folder], *arguments, **more)

    def read_figures(self):
        with open(self.figures, encoding="utf-8") as file:
            return json.load(file)

    def read_notes(self):
        """What the fake was started with, its child, and what it was asked for."""
        with open(self.notes, encoding="utf-8") as file:
            first, *requests = file.read().splitlines()
        *words, child = first.split()
        return words, int(child), requests


def is_running(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def a_python_that_is_not_there_is_named_and_its_figures_are_skipped(place):
    said = place.bench(77, python="/no/such/python")
    line, = (line for line in said.splitlines() if line.startswith(NAME))
    assert "skipped: cannot run /no/such/python" in line and "TIERD_BENCH_PYTHON" in line, line
    said = place.all_benches(0, python="/no/such/python")
    assert "failed" not in said and said.count("skipped: cannot run /no/such/python") == 2, said
    skip, = place.read_figures()
    assert skip["name"] == NAME and "/no/such/python" in skip["skipped"] and "value" not in skip, skip


def what_deepspeed_lacks_is_said(place):
    assert f"{NAME}        skipped: a friend, to be found elsewhere\n" in place.bench(77, fake="missing a friend, to be found elsewhere|end")
    # As it is where site packages are not: no environment of a person's own has any part in it.
    done = subprocess.run([sys.executable, "-S", "-I", os.path.join(FOLDER, "peer.py"), "adam", "16", "1"], stdin=subprocess.DEVNULL,
                          env={**os.environ, "TIERD_BENCH_PEER_HAS_BEGUN": "yes"}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and "has no torch and no deepspeed: ./run bench --peers" in done.stdout, done
    assert done.stdout.startswith("missing ") and done.stdout.count("\n") == 1, done


def each_format_is_looked_at_and_the_least_is_the_figure(place):
    said = place.bench(0, fake="ready FakeSpeed 1.0|1e9", fast="master")
    assert f"{NAME}: FakeSpeed 1.0\n" in said and f"{NAME}: least is left beside its bf16 parameters and an fp32 master" in said, said
    words, _, requests = place.read_notes()
    assert words[:2] == ["peer.py", "adam"] and int(words[2]) > 1 << 20 and int(words[3]) >= 1, words
    assert [request.split()[0] for request in requests[:2]] == ["fp32", "master"], requests
    assert {request.split()[0] for request in requests[2:]} == {"master"}, requests
    figure, = place.read_figures()
    assert figure["name"] == NAME and figure["limit"] == 1.5 and figure["bound"] == "least", figure
    # It always is as fast as it was.
    assert 0 < figure["value"] < 1 and figure["spread"] == 1, figure


def what_keeps_less_is_compared_by_bytes(place):
    place.bench(0, fake="ready FakeSpeed 1.0|1e9", name=f"{NAME}_per_byte")
    _, _, requests = place.read_notes()
    assert {request.split()[0] for request in requests} == {"bf16"}, requests
    figure, = place.read_figures()
    assert figure["name"] == f"{NAME}_per_byte" and figure["limit"] is None, figure


def whoever_does_not_answer_with_a_rate_is_an_error(place):
    for fake, reason in [("hello|end", "neither ready"), ("ready|end", "neither ready"), ("ready x|end", "has ended"),
                         ("ready x|1 fast", '"1 fast"'), ("ready x|0", '"0"'), ("ready x|nan", '"nan"'), ("ready " + "x" * 600 + "|1", "no answer")]:
        said = place.bench(1, fake=fake)
        assert reason in said and "benchmark failed" in said, (fake, said)
        assert place.read_figures() == [], fake
    assert "failed: bench_kernels: exit status 1" in place.all_benches(1, fake="hello|end")


def nothing_that_was_started_is_left(place):
    for status, fake in [(77, "missing x|end"), (1, "hello|end"), (0, "ready x|1e9")]:
        place.bench(status, fake=fake)
        _, child, _ = place.read_notes()
        wait_until(lambda process=child: not is_running(process))


def main():
    for case in (a_python_that_is_not_there_is_named_and_its_figures_are_skipped, what_deepspeed_lacks_is_said,
                 each_format_is_looked_at_and_the_least_is_the_figure, what_keeps_less_is_compared_by_bytes,
                 whoever_does_not_answer_with_a_rate_is_an_error,
                 nothing_that_was_started_is_left):
        with tempfile.TemporaryDirectory() as folder:
            case(Place(folder))
        print(case.__name__, flush=True)


main()
